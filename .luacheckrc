-- luacheck lua recipes machines spec datasets
std = "lua54"
max_line_length = 100
-- text in long brackets (help pages, recipes inside specs) keeps its own lines
max_string_line_length = false
cache = false
files["recipes"] = { read_globals = { "recipe" } }
files["datasets/demo/metric.lua"] = { read_globals = { "watch" } }
files["spec"] = { std = "+busted" }
files["spec/**/fixtures"] = { read_globals = { "recipe" } }
files["spec/support"] = { globals = { "arg" } }
files["spec/twin"] = { read_globals = { "recipe" } }
-- recipe texts, JSON and command lines that are clearer in one piece
for _, name in ipairs {
  "cli/reference_flags", "core/process", "recipe/fold", "recipe/sandbox",
  "recipes/reference", "repl/large", "repl/terminal", "settings/stages", "text/table",
} do
  files["spec/lua/" .. name .. "_spec.lua"] = { max_line_length = false }
end
exclude_files = { "build" }
