--- From findings to tables and a verdict: pure functions over what run.lua collected.
-- @module datasets.demo.report
local report = {}

--- What the demo promises, per set of 8 prompts x 4 sampling seeds.
report.promise = { colour = 28, direction = 22, loss_ratio = 0.5, near_noise = 0.47 }

--- What it promises in a latent that is learned, of 48 fresh clips that went through it too.
report.promise_latent = { colour = 28, direction = 24, loss_ratio = 0.5, psnr = 28, drawn = 26,
  right = 46 }

--- What it promises where a first frame is given, of 8 frames x 4 sampling seeds in each set.
report.promise_given = { right = 26, loss_ratio = 0.5 }

--- "right" when colour and direction are as asked, "half" when one is, "wrong" otherwise.
---@param asked {colour: string, direction: string|nil}
---@param found table|nil  of measure.find
---@return string
function report.mark(asked, found)
  local colour = found ~= nil and found.colour == asked.colour
  local direction = found ~= nil and found.direction == asked.direction
  return colour and direction and "right" or (colour or direction) and "half" or "wrong"
end

--- Count what was found as asked.
---@param rows table[]  {asked = {colour, direction}, found = list of findings or false}
---@return table  colour, direction, of
function report.count(rows)
  local n = { colour = 0, direction = 0, of = 0 }
  for _, row in ipairs(rows) do
    for _, found in ipairs(row.found) do
      n.of = n.of + 1
      if found and found.colour == row.asked.colour then
        n.colour = n.colour + 1
      end
      if found and found.direction == row.asked.direction then
        n.direction = n.direction + 1
      end
    end
  end
  return n
end

--- One line per prompt: what was asked, what each rendering shows.
---@param title string
---@param rows table[]  as for count, with `prompt`
---@return string
function report.table(title, rows)
  local lines = { ("%-52s %-64s colour direction"):format(title, "found, one per sampling seed") }
  for _, row in ipairs(rows) do
    local words = {}
    for i, found in ipairs(row.found) do
      words[i] = found and ("%s %s"):format(found.colour or "grey", found.direction or "-")
        or "nothing"
    end
    local n = report.count { row }
    lines[#lines + 1] = ("%-52s %-64s %4d/%d %7d/%d"):format(row.prompt,
      table.concat(words, ", "), n.colour, n.of, n.direction, n.of)
  end
  local n = report.count(rows)
  lines[#lines + 1] = ("%s: %d of %d show the asked colour, %d of %d the asked direction"):format(
    title, n.colour, n.of, n.direction, n.of)
  return table.concat(lines, "\n")
end

--- Losses by time with their standard errors.
---@param loss table  of datasets.demo.held_out
---@return string
function report.loss_table(loss)
  local times, losses = {}, {}
  for i, t in ipairs(loss.times) do
    times[i] = ("%12s"):format(("t = %.2f"):format(t / 1000))
    losses[i] = ("%.3f±%.3f"):format(loss.losses[i], loss.errors[i])
  end
  return ("loss of %d fresh clips of the held-out triples, from little noise to much:\n%s\n %s")
    :format(loss.clips, table.concat(times), table.concat(losses, " "))
end

--- Mean loss of the first and the last `window` steps.
---@param losses number[]
---@param window integer
---@return number first
---@return number last
function report.loss_ends(losses, window)
  window = math.min(window, #losses)
  local first, last = 0, 0
  for i = 1, window do
    first, last = first + losses[i], last + losses[#losses - i + 1]
  end
  return first / window, last / window
end

-- {kept, sentence} of a loss
local function loss_check(first, last, ratio)
  return { last < ratio * first, ("loss fell from %.4f (first 50 steps) to %.4f (last 50): to "
    .. "%.0f %%, promised below %.0f %%"):format(first, last, 100 * last / first, 100 * ratio) }
end

-- do all of them hold, and the sentences
local function judged(checks)
  local ok, sentences = true, {}
  for i, check in ipairs(checks) do
    ok = ok and check[1]
    sentences[i] = (check[1] and "kept    " or "BROKEN  ") .. check[2]
  end
  return ok, sentences
end

--- The same where a first frame is given.
---@param first number           mean loss of the first steps
---@param last number            of the last steps
---@param counts table           set -> count of its questions
---@return boolean ok
---@return string[] sentences
function report.verdict_given(first, last, counts)
  local p = report.promise_given
  local frame, text = counts["other frame"], counts["other text"]
  return judged { loss_check(first, last, p.loss_ratio),
    { frame.colour >= p.right, ("with another first frame the colour is the frame's in %d of %d, "
      .. "promised %d"):format(frame.colour, frame.of, p.right) },
    { text.direction >= p.right, ("with another text the direction is the text's in %d of %d, "
      .. "promised %d"):format(text.direction, text.of, p.right) } }
end

--- Whether the promise holds, as sentences.
---@param first number     mean loss of the first steps
---@param last number      of the last steps
---@param held_out table   count of the held-out prompts
---@param loss table       of datasets.demo.held_out
---@param back table|nil   of reconstruct.measure; nil: nothing of the autoencoder was learned
---@return boolean ok
---@return string[] sentences
function report.verdict(first, last, held_out, loss, back)
  local p = back and report.promise_latent or report.promise
  local checks = {
    loss_check(first, last, p.loss_ratio),
    { held_out.colour >= p.colour, ("held-out colour %d of %d, promised %d"):format(held_out.colour,
      held_out.of, p.colour) },
    { held_out.direction >= p.direction, ("held-out direction %d of %d, promised %d")
      :format(held_out.direction, held_out.of, p.direction) },
  }
  -- losses of different latents do not compare
  if not back then
    local near, n = loss.losses[#loss.losses], #loss.times
    checks[#checks + 1] = { near <= p.near_noise, ("held-out loss at t = %.2f is %.3f±%.3f, "
      .. "promised %.2f"):format(loss.times[n] / 1000, near, loss.errors[n], p.near_noise) }
  end
  if back then
    table.insert(checks, 1, { back.psnr >= p.psnr, ("fresh clips come back with %.1f dB (lowest "
      .. "%.1f), promised %d"):format(back.psnr, back.lowest, p.psnr) })
    table.insert(checks, 2, { back.drawn >= p.drawn and math.min(back.colour, back.direction)
      >= p.right, ("as drawn, with sharper colours than in files, with %.1f dB, promised %d, with "
      .. "colour %d and direction %d of %d right, promised %d"):format(back.drawn, p.drawn,
      back.colour, back.direction, back.of, p.right) })
  end
  return judged(checks)
end

return report
