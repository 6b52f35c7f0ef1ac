--- moonreel data filter: a new index of the rows for which an expression is true.
-- @module moonreel.cli.data.filter
local derived = require "moonreel.cli.derived"

return {
  words = "NAME.mrx EXPR -o NEW.mrx",
  summary = "keep the rows for which an expression is true: 'fps >= 23 and #text > 0'",
  output = true,
  options = { derived.output,
    { "--limit N", "stop after N rows", least = 1 } },
  details = "An expression is one of Lua, over the columns of the index and:\n  "
    .. table.concat(require("moonreel.data.row").names({}), ", ") .. ";\nand over "
    .. require("moonreel.data.expression").functions() .. ", string.*, math.*.\nTexts have "
    .. "methods: text:lower():find('red.*ball'); patterns are Lua's without %b and %1.\nA row that "
    .. "lacks a needed value is left out.",
  run = function(opts, _, path, text)
    local index = derived.open({ path })[1]
    local test, kept = require("moonreel.data.expression").compile(text, index.meta.columns), 0
    local otherwise = text .. " is false"
    return derived.run(opts, { from = { index }, made = "filter", by = text,
      choose = function(row)
        if opts.limit and kept == opts.limit then
          return false, "after the first --limit rows"
        end
        local good, why = test(row)
        kept = kept + (good and 1 or 0)
        return good and true or false, why or otherwise
      end })
  end,
}
