--- Says at the end of an error about the contents of a file what to try. Who opens a file knows
-- what its user can do about it; who reads it knows what is wrong. In C: mr_fail_try.
-- @module moonreel.text.hint

-- codes that blame the contents of a file
local CONTENTS <const> = { MR_E_CKPT = true, MR_E_DATA = true, MR_E_DECODE = true,
  MR_E_FORMAT = true }

--- Calls f; an error about contents that does not say yet what to try ends with a hint.
---@param hint string
---@param f function
---@return any ...  results of f
return function(hint, f, ...)
  local results = table.pack(pcall(f, ...))
  if results[1] then
    return table.unpack(results, 2, results.n)
  end
  local problem = results[2]
  if type(problem) == "table" and CONTENTS[problem.code]
      and not problem.message:find("try: ", 1, true) then
    local mark = problem.message:find("\n", 1, true) and "\n  try: " or "; try: "
    problem.message = problem.message .. mark .. hint
  end
  error(problem, 0)
end
