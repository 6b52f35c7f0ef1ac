--- Names of rendered files. The names of the reference come from make golden (data_rules).
local naming = require "moonreel.sample.naming"
local settings = require "moonreel.settings"

describe("files of renderings", function()
  -- names of the renderings of prompts, n for each
  local function files(rows, many, ...)
    local s = settings.bake("tiny/demo", { ... })
    local items = {}
    for i in ipairs(rows) do
      for k = 0, many - 1 do
        items[#items + 1] = { index = i - 1, number = k, many = many > 1 }
      end
    end
    local names = naming.new({ rows = rows, first = 4, stem = "list" }, s, { items = items,
      frames = 6, loop = 1, height = 32, width = 48 })
    return names:files(), names
  end

  local rows = { { text = "a cat." }, { text = "a dog", name = "dog/1" } }

  it("have their number, their name, or the prompt as a name", function()
    assert.same({ "sample_0004.mp4", "dog-1.mp4" }, (files(rows, 1)))
    assert.same({ "x_0004-0.mp4", "x_0004-1.mp4", "dog-1-0.mp4", "dog-1-1.mp4" },
      (files(rows, 2, "sample_name=x")))
    assert.same({ "p_sample_0004.mp4", "p_dog-1.mp4" }, (files(rows, 1, "save_prefix=p_")))
    assert.same({ "a cat..mp4", "a dog.mp4" }, (files(rows, 1, "prompt_as_path=true")))
    -- each name belongs to one prompt
    assert.same({ "a.mp4", "sample_0005.mp4" }, (files({ { text = "a" }, { text = "a" } }, 1,
      "prompt_as_path=true")))
  end)

  it("follow 2.0 under compat: a folder, the prompt file's name, and a file of the text",
    function()
    local theirs = "compat=opensora-2.0"
    local got, names = files(rows, 2, theirs, "sampling.resolution=256px", "save_prefix=p_")
    assert.same({ "video_256px/p_list_0004.mp4", "video_256px/p_list_0004_1.mp4",
      "video_256px/p_dog-1.mp4", "video_256px/p_dog-1_1.mp4" }, got)
    assert.is_true(names.text)
    assert.is_false(select(2, files(rows, 1)).text)
    assert.same({ "video_32x48/a cat-0.mp4", "video_32x48/a dog-0.mp4" },
      (files(rows, 1, theirs, "prompt_as_path=true")))
  end)

  it("end in the extension of pictures or clips", function()
    local s = settings.bake("tiny/demo")
    local names = naming.new({ rows = { { text = "a" } }, first = 0, stem = "prompt" }, s,
      { items = { { index = 0, number = 0 } }, frames = 1, loop = 1, height = 32, width = 48 })
    assert.same({ "sample_0000.png" }, names:files())
  end)
end)
