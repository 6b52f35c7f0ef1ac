--- Text encoder "t5" of a recipe: what is known of it without its weights. It declares no
-- parameters in the run's table; moonreel.embed computes its features, which are an input of the
-- step. Ref: opensora-1.2.md 6.
-- @module moonreel.models.t5
local base = require "moonreel.core.base"
local sizes = require "moonreel.models.t5.sizes"

local t5 = {}

--- Its weights lie in files of their own and are in no checkpoint of a run.
t5.apart = true

local Text = {}
Text.__index = Text

--- The encoder of a recipe. A released one is known by its name too, when its files are not there.
---@param _ mr.Params
---@param config table  from_pretrained, model_max_length, residency
---@param run table     dtype, compat
---@return mr.Text      apart; sizes; width and max_length of its features; tokens() once
---   moonreel.embed has loaded it; cleans: prompts are cleaned first
function t5.new(_, config, run)
  local path = config.from_pretrained
  if not path then
    base.raise("MR_E_RECIPE", "text_encoder.from_pretrained is not set; expected the folder of "
      .. "T5 v1.1: config.json, weights and spiece.model")
  end
  local s = sizes.of_folder(path) or sizes.of_name(path)
  if not s then
    base.raise("MR_E_RECIPE", ("text_encoder.from_pretrained: no config.json in '%s', and nothing "
      .. "is downloaded; try: a folder with config.json, weights and spiece.model of T5 v1.1")
      :format(path))
  end
  return setmetatable({ apart = true, cleans = true, path = path, sizes = s, width = s.d_model,
    dtype = run.dtype,
    max_length = config.model_max_length, residency = config.residency, compat = run.compat },
    Text)
end

--- Features of captions as the graph of a run takes them.
---@param captions string[]
---@return table  y [B, max_length, width], len i32 [B]
function Text:tokens(captions) return self.embedder:tokens(captions) end

--- Declare the inputs of a batch of B captions.
function Text:inputs(g, B)
  return { y = g:input("text_y", self.dtype, { B, self.max_length, self.width }),
    len = g:input("text_len", "i32", { B }) }
end

--- Set them on a program.
---@param tokens table  of Text:tokens; the number of tokens in use may be changed by the caller
function Text.set(_, prog, tokens)
  prog:set("text_y", tokens.y)
  prog:set("text_len", tokens.len)
end

--- Text features.
---@param inputs table  of Text:inputs
---@return mr.Value     [B, max_length, width]
function Text.forward(_, _, inputs) return inputs.y end

return t5
