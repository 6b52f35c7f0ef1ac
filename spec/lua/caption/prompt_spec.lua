--- The grammar of prompts, and the error for each mistake.
local base = require "moonreel.core.base"
local prompt = require "moonreel.caption.prompt"

local function message(f, ...)
  local good, err = pcall(f, ...)
  assert.is_false(good)
  assert.matches("^MR_E_", err.code)
  return err.message
end

describe("JSON in a prompt", function()
  it("is removed from the text", function()
    assert.same({ "A bird", { reference_path = "a.png", mask_strategy = "0" } },
      { prompt.extract 'A bird{"reference_path": "a.png", "mask_strategy": "0"}' })
    assert.same({ "A bird", {} }, { prompt.extract "A bird" })
    assert.same({ "", {} }, { prompt.extract "{}" })
  end)

  it("reports what is wrong with it", function()
    assert.matches("prompt 'a{b}': its {...} is not a JSON object: .*line 1",
      message(prompt.extract, "a{b}"))
    assert.matches("it contains more than one {",
      message(prompt.extract, 'a{"mask_strategy": "0"}{}'))
    assert.matches("unknown key 'mask' in its JSON; expected reference_path or mask_strategy",
      message(prompt.extract, 'a{"mask": "0"}'))
    assert.matches("reference_path in its JSON is not a text",
      message(prompt.extract, 'a{"reference_path": 7}'))
  end)
end)

describe("a prompt with a text per loop", function()
  it("is split, merged and read loop by loop", function()
    local texts, loops = prompt.split "|0| a day |2| a night"
    assert.same({ { "a day", "a night" }, { 0, 2 } }, { texts, loops })
    assert.equal("|0|a day|2|a night", prompt.merge(texts, loops))
    assert.equal(" a day ", prompt.at("|0| a day |2| a night", 1))
    assert.equal(" a night", prompt.at("|0| a day |2| a night", 2))
    assert.equal("a cat", prompt.at("a cat", 9))
    assert.same({ { "|1| x" } }, { prompt.split "|1| x" })
  end)

  it("reports the segment that does not exist", function()
    assert.matches("segment 2: expected |LOOP|TEXT, got 'b'", message(prompt.split, "|0|a|b|c"))
    assert.matches("segment 2: expected |LOOP|TEXT, got '3'", message(prompt.split, "|0|a|3"))
    assert.matches("segment 3 begins at loop 1, but the one before begins at 2",
      message(prompt.split, "|0|a|2|b|1|c"))
  end)
end)

describe("scores", function()
  it("are added to a text that lacks them, with one decimal", function()
    assert.equal("a cat aesthetic score: 5.2. motion score: 0.1. camera motion: zoom in.",
      prompt.score("a cat", { aes = 5.25, flow = 0.05, camera_motion = "zoom in" }))
    assert.equal("a. motion score: 9.0. aesthetic score: 6.5.",
      prompt.score("a. motion score: 9.0.", { aes = 6.5, flow = 4 }))
  end)
end)

describe("a prompt", function()
  it("is prepared segment by segment", function()
    local text, fields = prompt.prepare('|0| A DAY!|1| <b>A</b> night.{"mask_strategy": "0"}',
      { aes = 6.5 })
    assert.equal("|0|a day! aesthetic score: 6.5.|1|a night. aesthetic score: 6.5.", text)
    assert.same({ mask_strategy = "0" }, fields)
    assert.equal("a <b>day", (prompt.prepare(" A <b>Day ", { clean = false })))
  end)
end)

describe("reference_path", function()
  it("is a list of files", function()
    assert.same({}, prompt.references(nil))
    assert.same({}, prompt.references "")
    assert.same({ "README.md", "Makefile" }, prompt.references "README.md; Makefile")
  end)

  it("reports the reference that does not exist", function()
    assert.matches("reference 1, no/such.png: there is no such file",
      message(prompt.references, "README.md;no/such.png"))
    assert.matches("reference 1 has no path; expected FILE;FILE",
      message(prompt.references, "README.md;"))
    assert.matches("reference 0, https://a.b/c.png, is a URL; nothing is ever downloaded",
      message(prompt.references, "https://a.b/c.png"))
    assert.equal("MR_E_DATA", (select(2, pcall(prompt.references, "no.png"))).code)
    assert.is_false(base.exists "no.png")
  end)
end)
