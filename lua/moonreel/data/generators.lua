--- Generators of random numbers that the references draw from: the Mersenne twister as torch and
-- Python seed it, PCG64 as numpy does. For reproducing their order; our own draws are functions of
-- integers (moonreel.core.base). Ref: Matsumoto & Nishimura 1998; O'Neill 2014; opensora-2.0.md 17.
-- @module moonreel.data.generators
local generators = {}

local WORD = 0xffffffff
local N, M = 624, 397

-- ---- Mersenne twister ----

local Twister = {}
Twister.__index = Twister
Twister.__name = "moonreel.Twister"

local function fill(seed)
  local mt = { [0] = seed & WORD }
  for i = 1, N - 1 do
    mt[i] = (1812433253 * (mt[i - 1] ~ mt[i - 1] >> 30) + i) & WORD
  end
  return mt
end

-- seeding by an array of 32-bit words
local function fill_by(words)
  local mt, i, j = fill(19650218), 1, 0
  local function turn()
    i = i + 1
    if i >= N then
      mt[0], i = mt[N - 1], 1
    end
  end
  for _ = 1, math.max(N, #words) do
    mt[i] = ((mt[i] ~ (mt[i - 1] ~ mt[i - 1] >> 30) * 1664525) + words[j + 1] + j) & WORD
    j = (j + 1) % #words
    turn()
  end
  for _ = 1, N - 1 do
    mt[i] = ((mt[i] ~ (mt[i - 1] ~ mt[i - 1] >> 30) * 1566083941) - i) & WORD
    turn()
  end
  mt[0] = 0x80000000
  return mt
end

local function words_of(seed)
  return seed >> 32 ~= 0 and { seed & WORD, seed >> 32 } or { seed & WORD }
end

--- As torch's CPU generator after manual_seed.
---@param seed integer
---@return moonreel.Twister
function generators.torch(seed)
  return setmetatable({ mt = fill(seed), at = N }, Twister)
end

--- As Python's random after seed.
---@param seed integer  its absolute value counts
---@return moonreel.Twister
function generators.python(seed)
  return setmetatable({ mt = fill_by(words_of(math.abs(seed))), at = N }, Twister)
end

local function turn_over(mt)
  for k = 0, N - 1 do
    local y = mt[k] & 0x80000000 | mt[(k + 1) % N] & 0x7fffffff
    mt[k] = mt[(k + M) % N] ~ y >> 1 ~ (y & 1) * 0x9908b0df
  end
end

--- The next 32 bits.
---@return integer
function Twister:word()
  if self.at == N then
    turn_over(self.mt)
    self.at = 0
  end
  local y = self.mt[self.at]
  self.at = self.at + 1
  y = y ~ y >> 11
  y = y ~ y << 7 & 0x9d2c5680
  y = y ~ y << 15 & 0xefc60000
  return (y ~ y >> 18) & WORD
end

--- Python's random.random(): a number in [0, 1) of 53 bits.
---@return number
function Twister:random()
  local a, b = self:word() >> 5, self:word() >> 6
  return (a * 67108864.0 + b) / 9007199254740992.0
end

--- Python's random.randint(low, high).
---@param low integer
---@param high integer  is drawn, too
---@return integer
function Twister:randint(low, high)
  local n, bits = high - low + 1, 0
  while n >> bits ~= 0 do
    bits = bits + 1
  end
  local r
  repeat
    r = self:word() >> 32 - bits
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

-- values first .. first + 15 from as many uniform ones
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

--- torch.randn(n) of a fresh generator, f32; equal to within one unit in the last place.
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

-- ---- PCG64 ----

local Pcg = {}
Pcg.__index = Pcg
Pcg.__name = "moonreel.Pcg64"

local MUL_HI, MUL_LO = 0x2360ed051fc65da4, 0x4385df649fccf645

-- the upper 64 bits of a product
local function product_high(a, b)
  local a_lo, a_hi, b_lo, b_hi = a & WORD, a >> 32, b & WORD, b >> 32
  local low, mid = a_lo * b_lo, a_hi * b_lo
  local sum = mid + (low >> 32)
  local other = a_lo * b_hi + (sum & WORD)
  return a_hi * b_hi + (sum >> 32) + (other >> 32)
end

local function add(hi, lo, more_hi, more_lo)
  local sum = lo + more_lo
  return hi + more_hi + (math.ult(sum, lo) and 1 or 0), sum
end

local function step(self)
  local hi, lo = self.hi, self.lo
  local p_hi = product_high(lo, MUL_LO) + hi * MUL_LO + lo * MUL_HI
  self.hi, self.lo = add(p_hi, lo * MUL_LO, self.inc_hi, self.inc_lo)
end

-- eight words from a seed, as numpy's SeedSequence makes them
local function seed_words(seed)
  local h = 0x43b0d7e5
  local function hash(v)
    v = (v ~ h) & WORD
    h = h * 0x931e8875 & WORD
    v = v * h & WORD
    return v ~ v >> 16
  end
  local function mix(x, y)
    local r = (0xca01f9dd * x - 0x4973f715 * y) & WORD
    return r ~ r >> 16
  end
  local words, pool = words_of(seed), {}
  for i = 1, 4 do
    pool[i] = hash(words[i] or 0)
  end
  for i = 1, 4 do
    for j = 1, 4 do
      if i ~= j then
        pool[j] = mix(pool[j], hash(pool[i]))
      end
    end
  end
  local out, g = {}, 0x8b51f9dd
  for i = 0, 7 do
    local v = pool[i % 4 + 1] ~ g
    g = g * 0x58f38ded & WORD
    v = v * g & WORD
    out[i] = v ~ v >> 16
  end
  return out
end

--- As numpy.random.default_rng(seed).
---@param seed integer  from 0
---@return moonreel.Pcg64
function generators.numpy(seed)
  local w, s = seed_words(seed), {}
  for i = 0, 3 do
    s[i] = w[2 * i] | w[2 * i + 1] << 32
  end
  local self = setmetatable({ hi = 0, lo = 0, inc_hi = s[2] << 1 | s[3] >> 63,
    inc_lo = s[3] << 1 | 1 }, Pcg)
  step(self)
  self.hi, self.lo = add(self.hi, self.lo, s[0], s[1])
  step(self)
  return self
end

--- The next number in [0, 1), of 53 bits.
---@return number
function Pcg:random()
  step(self)
  local word, turn = self.hi ~ self.lo, self.hi >> 58
  word = word >> turn | word << (64 - turn & 63)
  return (word >> 11) / 9007199254740992.0
end

return generators
