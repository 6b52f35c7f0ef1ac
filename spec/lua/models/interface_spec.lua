--- What an autoencoder and a text encoder have: one that lacks a field or a method is refused by
-- name before a run computes anything.
local fails = require "spec.support.fails"
local interface = require "moonreel.models.interface"

describe("the interface of a family", function()
  local function nothing() end

  local function vae(changes)
    local made = { channels = 8, side = 8, step = 2, lengths = "2n+1", latent = nothing,
      most_frames = nothing, head = nothing, tail = nothing, parts = nothing, calls = nothing,
      apart = true, maps = { {} } }
    for name, value in pairs(changes or {}) do
      made[name] = value ~= "none" and value or nil
    end
    return made
  end

  local function refused(pattern, record, made)
    fails("MR_E_RECIPE", record .. "%.type = toy: " .. pattern, interface.check, record,
      "toy", made)
  end

  it("of an autoencoder has sizes, methods and a rule of lengths", function()
    local good = vae()
    assert.equal(good, interface.check("vae", "toy", good))
    for _, rule in ipairs { "any", "4n+1", "4n or 1", "1", "32n", "none" } do
      interface.check("vae", "toy", vae { lengths = rule })
    end
    for _, name in ipairs { "latent", "most_frames", "head", "tail", "parts", "calls" } do
      refused("`" .. name .. "` of its family is nil; expected a function", "vae",
        vae { [name] = "none" })
    end
    for _, name in ipairs { "channels", "side", "step" } do
      refused("`" .. name .. "` of its family is 0; expected an integer from 1 on", "vae",
        vae { [name] = 0 })
      refused("`" .. name .. "` of its family is 1.5", "vae", vae { [name] = 1.5 })
    end
    for _, rule in ipairs { "n", "4n+", "4n, 1", "0n", "" } do
      refused("`lengths` of its family is \"", "vae", vae { lengths = rule })
    end
    refused("`lengths` of its family is 4;", "vae", vae { lengths = 4 })
    refused("the result of `new` of its family is nil; expected a table", "vae", nil)
  end)

  it("depends on whether its weights are separate", function()
    refused("`maps` of its family is nil; expected a list", "vae", vae { maps = "none" })
    refused("`encode` of its family is nil", "vae", vae { apart = "none" })
    interface.check("vae", "toy", vae { apart = "none", maps = "none", encode = nothing,
      decode = nothing })
  end)

  it("of a text encoder has its width, and how its padding is used", function()
    local made = { apart = true, width = 16, max_length = 1, padding = "skip", maps = { {} } }
    for name in ("tokens inputs set forward tensors read elements about tokenizer values parts "
        .. "calls"):gmatch "%S+" do
      made[name] = nothing
    end
    for _, record in ipairs { "text_encoder", "clip" } do
      assert.equal(made, interface.check(record, "toy", made))
    end
    made.padding = "ski"
    refused("`padding` of its family is \"ski\"; expected \"skip\" or \"attend\"", "clip", made)
    made.apart = nil
    interface.check("clip", "toy", made)
    made.forward = nil
    refused("`forward` of its family is nil", "text_encoder", made)
  end)

  it("of a diffusion model is not checked", function()
    assert.is_nil(interface.check("model", "toy", nil))
  end)
end)
