--- fails(code, pattern, f, ...): f(...) raises an error of that code whose text matches.
local assert = require "luassert"

---@return table err
return function(code, pattern, f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  assert.equal(code, err.code)
  assert.matches(pattern, tostring(err))
  return err
end
