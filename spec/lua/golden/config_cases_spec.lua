--- The reference's recipe language: our results compared with our rules and with the reference's
-- results.
-- Covers: spec/golden/runner/config_rules.lua spec/golden/runner/python.lua
-- spec/golden/runner/twins.lua
local base = require "moonreel.core.base"
local cases = require "spec.golden.runner.config_cases"

local function recorder()
  return { count = 0, bad = {}, exact = function(self, name, differing)
    self.count = self.count + 1
    if differing > 0 then
      table.insert(self.bad, name)
    end
  end }
end

describe("config_cases", function()
  it("all have the value of the rules", function()
    local result = recorder()
    cases.run(base.read_file("spec/golden/recipes/config_cases.json"), result)
    assert.equal("", table.concat(result.bad, "\n"))
    assert.equal(226, result.count)
  end)

  it("fail when a value, an error or a twin is changed", function()
    local text = base.read_file("spec/golden/recipes/config_cases.json")
    local function bad(from, to)
      local at, stop = text:find(from, 1, true)
      local result = recorder()
      cases.run(text:sub(1, at - 1) .. to .. text:sub(stop + 1), result)
      return result.bad
    end
    assert.same({ "convert  5 : not the value of the rules" },
      { bad('"value": 5', '"value": 6')[1] })
    assert.equal(1, #bad('"5e-5"', '"5e-6"'))
    assert.equal(1, #bad('"config": "cfg.py"', '"config": "other.py"'))
    -- the reference's result counts when no rule differs
    assert.equal(1, #bad('"lr": 5e-05', '"lr": 5e-06'))
  end)

  it("are read from the file: other names, values and parts need no new code", function()
    local json = require "moonreel.core.json"
    local tuple = function(...) return { __tuple__ = json.array { ... } } end
    -- a dictionary whose only key is a number
    local function counts(...)
      return { __dict__ = json.array { json.array { 1, tuple(...) } } }
    end
    local function bad(content)
      local result = recorder()
      cases.run(json.encode(content), result)
      return result.bad
    end
    local function convert(input, value) return { input = input, ok = true, value = value } end
    local file = {
      auto_convert = json.array {
        convert("2e999", { __float__ = "inf" }), convert("0x1F", 31), convert("7, 8", tuple(7, 8)),
        convert("(7)", 7), convert("(7, 8)", tuple(7, 8)), convert("b'q'", { __bytes__ = "q" }),
        convert("3 # three", 3), convert("'a' 'b'", "ab"), convert("-  9", -9),
        convert("tRUE", true),
        convert("{3, 4}", { __set__ = json.array { "3", "4" } }), convert("word", "word"),
        convert("[none, 1]", "[none, 1]"), convert("TRUE ", "TRUE "), convert("\tnone", "\tnone"),
        convert('{"a": true}', '{"a": true}'), convert("([1])", json.array { 1 }),
        convert("[(1)]", json.array { 1 }), convert("{1: (1.0, 2)}", counts(1.0, 2)),
        convert("[1],2", tuple(json.array { 1 }, 2)),
        convert("[1e400]", json.array { { __float__ = "inf" } }), convert("'it\\'s'", "it's"),
        convert("'\\x41'", "A"), convert("-(1)", -1), convert("1_e5", "1_e5"),
        convert("0x_ff", 255), convert("9223372036854775807", math.maxinteger),
      },
      merge_base = { rate = 0.5, count = 3, on = true, title = "t", sizes = json.array { 1, 2 },
        part = { width = 4, name = "n", inner = { deep = { x = 1 } } }, empty = json.null,
        rates = json.array { 0.5, 0.25 }, nothing = json.array {}, mixed = json.array { 1, "b" },
        bucket_config = { ["256px"] = counts(1.0, 5) } },
      merge = json.array {
        { args = json.array { "--rate", "2" }, ok = true, changed_top_level = { rate = 2.0 } },
        { args = json.array { "--count", "x" }, ok = false, error = "ValueError" },
        { args = json.array { "--part.inner.deep.x", "9" }, ok = false, error = "AssertionError" },
        { args = json.array { "--part.width", "6" }, ok = true, changed_top_level = {
          part = { width = 6, name = "n", inner = { deep = { x = 1 } } } } },
        { args = json.array { "--part.name", "5" }, ok = true, changed_top_level = {
          part = { width = 4, name = 5, inner = { deep = { x = 1 } } } } },
        { args = json.array { "--part.inner", "{'z': 1}" }, ok = true, changed_top_level = {
          part = { width = 4, name = "n", inner = { z = 1 } } } },
        { args = json.array { "--bucket_config.512px", "{1: (0.5, 3)}" }, ok = true,
          changed_top_level = { bucket_config = {
            ["256px"] = counts(1.0, 5), ["512px"] = counts(0.5, 3) } } },
        { args = json.array { "--bucket_config.512px", "none" }, ok = true,
          changed_top_level = {} },
        { args = json.array { "--rate.x", "1" }, ok = false, error = "AssertionError" },
        { args = json.array { "--part..x", "1" }, ok = false, error = "AssertionError" },
        { args = json.array { "--rate", "1e400" }, ok = true, changed_top_level = {
          rate = { __float__ = "inf" } } },
        { args = json.array { "--rate=3", "--on" }, ok = true, changed_top_level = {
          ["rate=3"] = "--on" } },
        { args = json.array { "--sizes", "(3,)" }, ok = true, changed_top_level = {
          sizes = json.array { "(", "3", ",", ")" } } },
        { args = json.array { "--novel", "1" }, ok = true, changed_top_level = { novel = 1 } },
        { args = json.array { "--on", "0" }, ok = true, changed_top_level = { on = 0 } },
        { args = json.array { "--empty", "4" }, ok = false, error = "TypeError" },
        { args = json.array { "--title" }, ok = true, changed_top_level = {} },
      },
      inheritance = json.array {
        { files = { ["r.py"] = "x = 2\nz = x ** 3 - 1\nk = dict(a=(1, 2), b='s')\n",
          ["s.py"] = '_base_ = "r.py"\nx = 5\nk = dict(_delete_=True, b="u")\n' },
          entry = "s.py", ok = true, result = { x = 5, z = 7, k = { b = "u" } } },
        { files = { ["q/r.py"] = "part = dict(v=dict(w=1))\n",
          ["s.py"] = '_base_ = ["q/r.py"]\npart = dict(v=dict(w=_base_.part.v.w + 4), u=None)\n' },
          entry = "s.py", ok = true, result = { part = { v = { w = 5 }, u = json.null } } },
        { files = { ["r.py"] = "n = 1\n", ["t.py"] = "n = 2\n",
          ["s.py"] = '_base_ = ["r.py", "t.py"]\n' }, entry = "s.py", ok = false },
        { files = { ["s.py"] = '_base_ = ["gone.py"]\n' }, entry = "s.py", ok = false },
        -- what only Python computes has the value of the reference
        { files = { ["r.py"] = '"""What it is."""\n# and why\n'
          .. "m = dict(a=[i + 1 for i in (1, 2)], b=3)\nn = len('abc')  # three\n"
          .. "def twice(x):\n    y = 2 * x\n    return y\nk = twice(4)\n",
          ["s.py"] = '_base_ = "r.py"\nm = dict(b=4)\nq = [_base_.n] * 2\n'
          .. 'name = "{{ fileBasename }}"\n' },
          entry = "s.py", ok = true,
          result = { m = { a = json.array { 2, 3 }, b = 4 }, n = 3, k = 8,
            q = json.array { 3, 3 }, name = "s.py" } },
        { files = { ["r.py"] = "xs = [1, 2.5, 'a']\nm = [dict(x=1)]\ne = dict()\n"
          .. "f: int = 5; g = 6\n" },
          entry = "r.py", ok = true, result = { xs = json.array { 1, 2.5, "a" },
            m = json.array { { x = 1 } }, e = {}, f = 5, g = 6 } },
        { files = { ["r.py"] = "x = 0.5\nm = dict(a=1)\n",
          ["s.py"] = '_base_ = "r.py"\nx = "text"\n' }, entry = "s.py", ok = true,
          result = { x = "text", m = { a = 1 } } },
        { files = { ["r.py"] = "x = 0.5\nm = dict(a=1)\n",
          ["s.py"] = '_base_ = "r.py"\nm = [1]\n' }, entry = "s.py", ok = true,
          result = { x = 0.5, m = json.array { 1 } } },
      },
      argv = json.array {
        { argv = json.array { "r.py", "--a.b-c", "1", "d=2" }, config = "r.py",
          rest = json.array { "--a.b-c", "1", "d=2" } },
      },
    }
    assert.same({}, bad(file))
    -- when such a value is missing, the case is left out with a reason
    local left
    local function judged(content)
      left = {}
      local result = recorder()
      result.leave = function(_, name, why) left[#left + 1] = name .. ": " .. why end
      cases.run(json.encode(content), result)
      return result.count
    end
    file.inheritance[5].result.k = nil
    assert.equal(7, judged { inheritance = file.inheritance })
    assert.same({ "inheritance 5: r.py: the value of 'k' is beyond the reader of Python" }, left)
    file.inheritance[5].result.k = 8
    -- and wrong values are found
    file.inheritance[2].result.part.v.w = 6
    file.merge[4].changed_top_level.part.width = 7
    file.auto_convert[2].value = 30
    local found = bad(file)
    assert.same({ "convert 0x1F", "merge --part.width 6" },
      { found[1]:match("^[^:]*"), found[2]:match("^[^:]*") })
  end)
end)
