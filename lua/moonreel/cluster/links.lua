--- Measures the links between the hosts of a file, with one rank on each host.
-- @module moonreel.cluster.links
local json = require "moonreel.core.json"

local links = {}

-- the program of each rank; the first rank prints all results and the speed of an all-reduce
local PROGRAM = [[
local world = require("moonreel.comm").world { deadline_s = 30 }
local base, links = require "moonreel.core.base", require "moonreel.comm.links"
local team = require("moonreel.comm.team").new(world)
local found = links.measure(world, team:texts(os.getenv "MOONREEL_HOST"))
local x = require("moonreel.core.tensor").new("f32", { 1 << 18 })
world:all_reduce(x)
local started = base.now_s()
world:all_reduce(x)
found.sum = 2 * (world:size() - 1) / world:size() * 2 ^ 20 / (base.now_s() - started)
if world:rank() == 0 then
  print(require("moonreel.core.json").encode(found))
end
]]

--- Measures the links.
---@param opts table           hostfile, include, exclude
---@return table|nil found     of moonreel.comm.links.measure; sum: bytes per second of each host in
---   a sum of all
---@return string|nil problem  why the ranks could not form a group
function links.measure(opts)
  local said = {}
  local stdout = { write = function(_, text) said[#said + 1] = text end, flush = function() end }
  local good, code, text = pcall(require("moonreel.cluster.launch").run, { "-e", PROGRAM }, {
    ranks = 1, hostfile = opts.hostfile, include = opts.include, exclude = opts.exclude,
    stdout = stdout, say = function() end })
  if not good then
    return nil, type(code) == "table" and code.message or tostring(code)
  end
  local read, found = pcall(json.decode, table.concat(said))
  if code ~= 0 or not read then
    return nil, text or "the ranks of the hosts could not connect to each other"
  end
  return found
end

return links
