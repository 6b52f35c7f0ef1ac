--- What autoencoders and text encoders of a family have (README.md). A family that lacks a part of
-- it is refused by name before a run computes anything.
-- @module moonreel.models.interface
local base = require "moonreel.core.base"
local frames = require "moonreel.models.frames"

local interface = {}

local function is_count(x) return math.type(x) == "integer" and x >= 1 end
local function is_function(x) return type(x) == "function" end
local function is_list(x) return type(x) == "table" and #x > 0 end

local function is_rule(x) return x == nil or frames(x) ~= nil end

local COUNT, METHOD = { "an integer from 1 on", is_count }, { "a function", is_function }
local MAPS = { "a list such as {weights.lua}", is_list }

-- what each kind of part has: {name, {what is expected, test}}
local FORMS = {
  autoencoder = { { "channels", COUNT }, { "side", COUNT }, { "step", COUNT },
    { "lengths", { 'a text such as "any", "4n+1" or "4n or 1"', is_rule } },
    { "latent", METHOD }, { "most_frames", METHOD }, { "head", METHOD }, { "tail", METHOD },
    { "parts", METHOD }, { "calls", METHOD } },
  separate_autoencoder = { { "maps", MAPS } },
  inner_autoencoder = { { "encode", METHOD }, { "decode", METHOD } },
  text = { { "width", COUNT }, { "max_length", COUNT }, { "tokens", METHOD },
    { "inputs", METHOD }, { "set", METHOD }, { "forward", METHOD } },
  separate_text = { { "padding", { '"skip" or "attend"',
      function(x) return x == "skip" or x == "attend" end } },
    { "maps", MAPS }, { "tensors", METHOD }, { "read", METHOD }, { "elements", METHOD },
    { "about", METHOD }, { "tokenizer", METHOD }, { "values", METHOD }, { "parts", METHOD },
    { "calls", METHOD } },
}

local RECORDS = { vae = { "autoencoder", "separate_autoencoder", "inner_autoencoder" },
  text_encoder = { "text", "separate_text" }, clip = { "text", "separate_text" } }

--- Refuses a part of a run that lacks something.
---@param record string  "vae", "text_encoder" or "clip"; parts of other records may have anything
---@param type_of string  the type that selects its family, for errors
---@param made table|nil  what `new` of the family returned
---@return table made
function interface.check(record, type_of, made)
  local forms = RECORDS[record]
  if not forms then
    return made
  end
  local function refuse(what, came, expected)
    base.raise("MR_E_RECIPE", ("%s.type = %s: %s of its family is %s; expected %s"):format(record,
      type_of, what, type(came) == "string" and ("%q"):format(came)
      or type(came) == "number" and tostring(came) or type(came), expected))
  end
  if type(made) ~= "table" then
    refuse("the result of `new`", made, "a table")
  end
  for _, name in ipairs { forms[1], made.apart and forms[2] or forms[3] } do
    for _, row in ipairs(FORMS[name]) do
      local came = made[row[1]]
      if not row[2][2](came) then
        refuse(("`%s`"):format(row[1]), came, row[2][1])
      end
    end
  end
  return made
end

return interface
