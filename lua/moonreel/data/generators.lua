--- Random generators of the references: the Mersenne twister as torch and Python seed it, PCG64 as
-- numpy does. They are for reproducing the references' order; our own draws are functions of
-- integers (moonreel.core.base). Ref: Matsumoto & Nishimura 1998; O'Neill 2014; opensora-2.0.md 17.
-- @module moonreel.data.generators
local core = require "moonreel.core.generator"

local generators = {}

local Twister = {}
Twister.__index = Twister
Twister.__name = "moonreel.Twister"

--- torch's CPU generator after manual_seed.
---@param seed integer
---@return moonreel.Twister
function generators.torch(seed)
  return setmetatable({ core = core.torch(seed) }, Twister)
end

--- Python's random after seed.
---@param seed integer  its absolute value is used
---@return moonreel.Twister
function generators.python(seed)
  return setmetatable({ core = core.python(seed) }, Twister)
end

--- The next 32 bits.
---@return integer
function Twister:word() return self.core:word() end

--- Python's random.random(): a number in [0, 1) of 53 bits.
---@return number
function Twister:random()
  local a, b = self:word() >> 5, self:word() >> 6
  return (a * 67108864.0 + b) / 9007199254740992.0
end

-- Python's random.getrandbits(n), of at most 63: the low word comes first
local function bits_of(self, n)
  if n <= 32 then
    return self:word() >> 32 - n
  end
  local low = self:word()
  return low | (self:word() >> 64 - n) << 32
end

--- Python's random.randint(low, high).
---@param low integer
---@param high integer  included; fewer than 2^62 above low
---@return integer
function Twister:randint(low, high)
  local n, bits = high - low + 1, 0
  while n >> bits ~= 0 do
    bits = bits + 1
  end
  local r
  repeat
    r = bits_of(self, bits)
  until r < n
  return low + r
end

--- torch.randperm(n), from 0.
---@param n integer  below 2^32
---@return integer[]
function Twister:permutation(n)
  local list = {}
  for i = 1, n do
    list[i] = i - 1
  end
  for i = 1, n - 1 do
    local j = i + self:word() % (n - i + 1)
    list[i], list[j] = list[j], list[i]
  end
  return list
end

local function single(x) return (string.unpack("f", string.pack("f", x))) end

--- torch.rand(n), f32 in [0, 1).
---@param n integer
---@return number[]
function Twister:uniform(n)
  local list = {}
  for i = 1, n do
    list[i] = (self:word() & 0xffffff) / 16777216.0
  end
  return list
end

-- values first .. first + 15 from the same number of uniform ones
local function transform(list, first)
  for j = first, first + 7 do
    local u1, u2 = single(1 - list[j]), list[j + 8]
    local radius, angle = single(math.sqrt(single(-2 * single(math.log(u1))))), single(2 * math.pi
      * u2)
    list[j], list[j + 8] = single(radius * single(math.cos(angle))),
      single(radius * single(math.sin(angle)))
  end
end

-- two normal numbers from two uniform ones of 53 bits
local function pair(self)
  local function fraction()
    local high = self:word()
    return ((high << 32 | self:word()) & (1 << 53) - 1) / 9007199254740992.0
  end
  local u1, u2 = fraction(), fraction()
  local radius, angle = math.sqrt(-2 * math.log(1 - u2)), 2 * math.pi * u1
  return radius * math.cos(angle), radius * math.sin(angle)
end

--- torch.randn(n) of a new generator, f32; equal to within one unit in the last place.
---@param n integer
---@return number[]
function Twister:normal(n)
  local list = {}
  if n < 16 then
    for i = 1, n, 2 do
      local a, b = pair(self)
      list[i], list[i + 1] = single(a), single(b)
    end
    list[n + 1] = nil
    return list
  end
  list = self:uniform(n)
  for first = 1, n - 15, 16 do
    transform(list, first)
  end
  if n % 16 > 0 then
    table.move(self:uniform(16), 1, 16, n - 15, list)
    transform(list, n - 15)
  end
  return list
end

--- numpy.random.default_rng(seed): random() gives the next number in [0, 1), with 53 bits.
---@param seed integer  from 0
---@return mr.Pcg64
function generators.numpy(seed) return core.numpy(seed) end

return generators
