--- A folder for one spec: writes files into it, runs the program in it, removes it at the end.
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"

local folder = {}
local Folder = {}
Folder.__index = Folder

--- Makes an empty folder.
function folder.new()
  local path = os.tmpname()
  os.remove(path)
  base.make_dir(path)
  return setmetatable({ path = path }, Folder)
end

--- Makes a folder with another in it, which a function writes.
---@param write fun(path: string, ...)  weights.t5, weights.clip of datasets.demo
---@param ... any       for it
---@return table        the outer folder
---@return string path  of the inner one
function folder.around(write, ...)
  local self = folder.new()
  local path = self.path .. "/inside"
  write(path, ...)
  return self, path
end

--- Writes a file below it; returns the full path.
function Folder:write(name, text)
  local path = self.path .. "/" .. name
  local parent = name:match("^(.*)/[^/]*$")
  if parent then
    base.make_dir(self.path .. "/" .. parent)
  end
  base.replace_file(path, text)
  return path
end

--- Writes a safetensors file with the parameters of a table in f32; returns the full path.
---@param name string
---@param params mr.Params
---@param value_of fun(p: table, i: integer): mr.Tensor  for rows of params:list()
function Folder:write_weights(name, params, value_of)
  local path, rows = self:write(name, ""), {}
  for i, p in ipairs(params:list()) do
    local values = value_of(p, i):bytes()
    rows[i] = { name = p.name, dtype = "f32", shape = p.shape, ptr = values, bytes = #values }
  end
  require("moonreel.ckpt").write(path, rows)
  return path
end

--- The same with random weights that preserve the size of values; biases and scales of norms are
-- `small` times those of a normal distribution.
function Folder:random_weights(name, params, small)
  return self:write_weights(name, params, function(p, i)
    local t = T.new("f32", p.shape)
    return t:fill_normal(i, "w") * (#p.shape > 1 and (T.count(p.shape) / p.shape[1]) ^ -0.5
      or small)
  end)
end

--- Bakes a recipe text in this process.
---@param text string
---@param overrides table|nil
function Folder:bake(text, overrides)
  return require("moonreel.settings").bake(self:write("main.lua", text),
    overrides, { child = false })
end

--- The error of baking a text: code and text, without the folder's path.
function Folder:fault(text, overrides)
  local ok, problem = pcall(self.bake, self, text, overrides)
  if ok then
    return nil, "baked without an error"
  end
  local message = tostring(problem)
  while true do
    local from, to = message:find(self.path .. "/", 1, true)
    if not from then
      break
    end
    message = message:sub(1, from - 1) .. message:sub(to + 1)
  end
  return type(problem) == "table" and problem.exit or "no code", message
end

--- Removes it with all files.
function Folder:remove()
  os.execute("rm -rf '" .. self.path .. "'")
end

Folder.__close = Folder.remove

--- Runs a command of the program; returns stdout, stderr and the exit code.
---@param words string  as a shell reads them
---@param before string|nil  variables or `cd DIR &&`
function folder.moonreel(words, before)
  local process = require "moonreel.core.process"
  local errors = os.tmpname()
  local done = process.run({ "/bin/sh", "-c",
    ("%s '%s' %s 2>'%s'"):format(before or "", process.program(), words, errors) },
      "", { deadline_s = 600 })
  local text = base.read_file(errors)
  os.remove(errors)
  return done.output, text, done.exit
end

--- A runner of `moonreel data WORDS`: @ in words is the folder that `place` gives, the exit code
-- has to be `want` or 0; gives stdout and stderr.
---@param place function
---@return function run(words, want)
function folder.data_command(place)
  return function(words, want)
    local out, err, code = folder.moonreel("data " .. (words:gsub("@", place())))
    require("luassert").equal(want or 0, code, out .. err)
    return out, err
  end
end

return folder
