--- A request for a rendering, with the settings as its defaults.
local along = require "moonreel.sample.rflow"
local request = require "moonreel.sample.request"
local settings = require "moonreel.settings"

describe("a request", function()
  local function read(given, overrides, cleans)
    return request.read(given, settings.bake("tiny/demo", overrides), along, {cleans = cleans})
  end

  it("takes from the settings what its arguments leave out", function()
    local r = read{prompts = {"a", "b"}}
    assert.same({6, 32, 32, 8, 8, 20, 1.5, 1}, {r.frames, r.height, r.width, r.fps, r.save_fps,
      r.steps, r.guidance, r.loop})
    assert.equal(8, #r.items)
    assert.equal(8, r.batch)
    local none = "sampling.batch_size=none"
    assert.equal(1, read({prompts = {"a", "b"}}, {none}).batch)
    assert.equal(3, read({prompts = {"a", "b"}}, {none, "batch_size=3"}).batch)
    assert.equal(8, read({prompts = {"a", "b"}}, {"batch_size=3"}).batch)
    assert.same({5, 0}, {r.condition_length, r.condition_edit})
    assert.equal(4, read({prompts = {"a"}}, {"frame_interval=2"}).save_fps)
    assert.equal(2, read({prompts = {"a"}}, {"frame_interval=3"}).save_fps)
    assert.equal(1, read({prompts = {"a"}}, {"frame_interval=9"}).save_fps)
    assert.equal(3, read({prompts = {"a"}}, {"frame_interval=2", "save_fps=3"}).save_fps)
  end)

  it("refuses frame rates that no file can have before anything is rendered", function()
    local fails = require "spec.support.fails"
    local function with(...)
      fails("MR_E_USAGE", "frames a second; expected above 0, at most 1000; try: %-%-save%-fps",
        read, {prompts = {"a"}}, {...})
    end
    with("save_fps=0")
    with("fps=1e9")
    assert.equal(1000, read({prompts = {"a"}}, {"save_fps=1000"}).save_fps)
    assert.equal(0, read({prompts = {"a"}, frames = 1}, {"save_fps=0"}).save_fps)
  end)

  it("numbers the renderings of a prompt, each with noise of its own", function()
    local seen = {}
    for i, item in ipairs(read({prompts = {"a", "b"}, seeds = {5, 9}, num_sample = 2}).items) do
      seen[i] = ("%s %d %d %d"):format(item.prompt, item.index, item.number, item.seed)
    end
    assert.same({"a 0 0 5", "a 0 1 6", "a 0 2 9", "a 0 3 10", "b 1 0 5", "b 1 1 6", "b 1 2 9",
      "b 1 3 10"}, seen)
  end)

  it("gives each prompt its own condition, and later ones the last condition", function()
    local function strategies(...)
      local list = {}
      for i, item in ipairs(read({prompts = {"a", "b", "c"}, seeds = {1}, strategies = {...}})
        .items) do
        list[i] = item.strategy or "none"
      end
      return list
    end
    assert.same({"0", "1", "1"}, strategies("0", "1"))
    assert.same({"none", "none", "none"}, strategies())
  end)

  it("refuses lists longer than the prompts, and those of the other flow", function()
    local fails = require "spec.support.fails"
    local function refused(pattern, given, ...)
      given.prompts = given.prompts or {"a"}
      fails("MR_E_USAGE", pattern, read, given, {...})
    end
    refused("2 texts of mask_strategy for 1 prompt; expected at most one for each",
      {strategies = {"0", "1"}})
    refused("3 texts of reference_path for 2 prompts", {references = {"a", "b", "c"},
      prompts = {"a", "b"}})
    refused("2 texts of mask_strategy for 1 prompt", {}, "mask_strategy={'0', '1'}")
    refused("neg: model.type = STDiT3 does not use it", {negatives = {"b"}})
    assert.equal(1, #read({prompts = {"a"}, seeds = {1}, strategies = {"0"}}).items)
  end)

  it("cleans captions if the text encoder was trained so, each text of a loop alone", function()
    local prompt = "|0|A <b>Bird</b> |2| <person> at 10.0.0.1"
    local function words(cleans)
      return read({prompts = {prompt}, seeds = {1}}, {"aes=5"}, cleans).items[1].words
    end
    assert.equal("|0|A <b>Bird</b> aesthetic score: 5.0.|2|<person> at 10.0.0.1 aesthetic score: "
      .. "5.0.", words(false))
    assert.matches("^|0|a bird aesthetic score: 5.0.|2|person at", words(true))
  end)
end)
