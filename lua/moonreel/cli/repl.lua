--- `moonreel repl`: a prompt with the whole runtime.
-- @module moonreel.cli.repl
local command = {
  name = "repl",
  summary = "interactive prompt: inspect checkpoints, data, recipes and tensors",
  usage = "repl [CKPT|RUN|RECIPE|NAME.mrx]",
  options = {
    { "CKPT|RUN", "opened as `ckpt` (a run also as `run`): step-N, RUN@STEP, a .safetensors file, "
      .. "an index file, .pth" },
    { "RECIPE", "baked as `r`" },
    { "NAME.mrx", "opened as `index`" },
    { "--outputs DIR", "folder in which to look up runs by folder name or number (default: "
      .. "outputs)" },
  },
  details = "Input may come from a file or a pipe: then only results are printed. docs/prompt.md "
    .. "is a first hour.\n`moonreel -n 4 repl`: four ranks run the lines that you type at the "
    .. "prompt of the first.",
}

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  if #parsed.positional > 1 then
    require("moonreel.recipe.fault").usage("repl: expected one thing to open, got %d; try: "
      .. "moonreel repl, then open(\"...\")",
      #parsed.positional)
  end
  local repl = require "moonreel.repl"
  local session = repl.new(require("moonreel.repl.ranks").find(),
    require("moonreel.cli.commands").find)
  if parsed.positional[1] then
    local opened = require("moonreel.repl.names").open_into(session.env, parsed.positional[1],
      parsed.options.outputs)
    if session.leads then
      print(opened)
    end
  end
  return repl.run(session)
end

return command
