-- luacheck lua recipes spec datasets
std = "lua54"
max_line_length = 140
cache = false
files["recipes"] = { read_globals = { "recipe" } }
-- recipe texts inside specs stand on one line
files["spec"] = { std = "+busted", max_line_length = false }
files["spec/**/fixtures"] = { read_globals = { "recipe" } }
files["spec/support"] = { globals = { "arg" } }
exclude_files = { "build" }
