local report = require "datasets.demo.report"

describe("datasets.demo.report", function()
  local asked = { colour = "red", direction = "up" }
  local rows = { {
    prompt = "a red square moving up on a black background", asked = asked,
    found = { { colour = "red", direction = "up" }, { colour = "red" }, { direction = "up" },
      false },
  } }

  it("scores a rendering by the part of the question that it answers", function()
    local marks = {}
    for i, found in ipairs(rows[1].found) do
      marks[i] = report.mark(asked, found or nil)
    end
    assert.same({ "right", "half", "half", "wrong" }, marks)
  end)

  it("counts colour and direction separately; nothing found counts as wrong", function()
    assert.same({ colour = 2, direction = 2, of = 4 }, report.count(rows))
  end)

  it("prints what each rendering shows", function()
    local text = report.table("held-out", rows)
    assert.matches("red up, red %-, grey up, nothing", text)
    assert.matches("held%-out: 2 of 4 show the asked colour, 2 of 4 the asked direction$", text)
  end)

  it("prints losses by time with their errors", function()
    assert.equal("loss of 48 fresh clips of the held-out triples, from little noise to much:\n"
      .. "    t = 0.09    t = 0.91\n 0.512±0.011 0.431±0.022", report.loss_table { clips = 48,
      times = { 90.9, 909.1 }, losses = { 0.512, 0.431 }, errors = { 0.011, 0.022 } })
  end)

  it("compares the loss at both ends of time", function()
    local losses = {}
    for i = 1, 200 do
      losses[i] = i <= 50 and 4 or i > 150 and 1 or 100
    end
    assert.same({ 4, 1 }, { report.loss_ends(losses, 50) })
  end)

  it("succeeds only when each condition is met", function()
    local good = { colour = 28, direction = 22, of = 32 }
    local function loss(near)
      return { times = { 90.9, 909.1 }, losses = { 3, near }, errors = { 0.1, 0.1 } }
    end
    assert.is_true((report.verdict(2, 0.9, good, loss(0.47))))
    assert.is_false((report.verdict(2, 1.0, good, loss(0.4))))
    assert.is_false((report.verdict(2, 0 / 0, good, loss(0.4))))
    assert.is_false((report.verdict(2, 0.9, { colour = 27, direction = 32, of = 32 }, loss(0.4))))
    assert.matches("^BROKEN  held%-out loss at t = 0.91 is 0.480±0.100, promised 0.47$",
      select(2, report.verdict(2, 0.9, good, loss(0.48)))[4])
    local ok, sentences = report.verdict(2, 0.9, { colour = 32, direction = 21, of = 32 },
      loss(0.4))
    assert.is_false(ok)
    assert.matches("^BROKEN  held%-out direction 21 of 32, promised 22$", sentences[3])
    assert.matches("^kept", sentences[1])
  end)

  it("also requires that renderings follow frame and text, when a frame is given", function()
    local counts = { ["held-out"] = { colour = 0, direction = 0, of = 32 },
      ["other frame"] = { colour = 26, direction = 0, of = 32 },
      ["other text"] = { colour = 0, direction = 26, of = 32 } }
    assert.is_true((report.verdict_given(2, 0.9, counts)))
    assert.is_false((report.verdict_given(2, 1.1, counts)))
    counts["other text"].direction = 25
    local ok, sentences = report.verdict_given(2, 0.9, counts)
    assert.is_false(ok)
    assert.matches("^BROKEN  with another text the direction is the text's in 25 of 32, promised "
      .. "26", sentences[3])
    counts["other text"].direction, counts["other frame"].colour = 32, 25
    assert.is_false((report.verdict_given(2, 0.9, counts)))
  end)

  it("also requires a small reconstruction error when the latent is learned", function()
    local held_out = { colour = 28, direction = 24, of = 32 }
    local function verdict(change)
      local back = { psnr = 28, drawn = 26, lowest = 20, colour = 46, direction = 46, of = 48 }
      for field, value in pairs(change) do
        back[field] = value
      end
      return report.verdict(2, 0.9, held_out, nil, back)
    end
    assert.is_true((verdict {}))
    for field, value in pairs { psnr = 27.9, drawn = 25.9, colour = 45, direction = 45 } do
      local ok, sentences = verdict { [field] = value }
      assert.is_false(ok, field)
      assert.matches("^BROKEN  " .. (field == "psnr" and "fresh clips come back with"
        or "as drawn, "), sentences[field == "psnr" and 1 or 2])
    end
    held_out.direction = 23
    assert.is_false((verdict {}))
  end)
end)
