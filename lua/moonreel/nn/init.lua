--- Layers. A constructor declares parameters in a table; a call adds nodes to a graph; nothing is
-- computed here. Every layer is called as layer(g, x, ...), where `g` is the graph that is being
-- built. Names and initialisation follow the released models (reference opensora-1.2, sections 1.2
-- and 1.3).
-- @module moonreel.nn
local G = require "moonreel.core.graph"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"
local split = require "moonreel.nn.split"

local nn = {}

-- a class whose objects are called as layer(g, ...)
local function class()
  local c = {}
  c.__index = c
  c.__call = function(self, ...) return self:forward(...) end
  return c
end

-- ---- scopes ----

local Scope = {}
Scope.__index = Scope

local read_group = options.declare("nn.scope", {
  { "frozen", "boolean", "no gradient and no update" },
  { "decay", "number", "factor of the weight decay" },
  { "lr_factor", "number", "factor of the learning rate" },
  { "linear", "text",
    "dtype of the operands of linear layers, f8 for 8 bits; absent: the layer's" },
  { "outside", "boolean", "frozen, from a separate file, and not in checkpoints" },
  { "model", "integer", "number of the model, if several are updated separately; absent: 0" },
  { "split", "mr.Split", "ranks that share layers (moonreel.nn.split); absent: one rank" },
})

--- Where the parameters of a layer are declared: a parameter table, a name prefix and a group.
---@param params mr.Params
---@param prefix string|nil   "" or "spatial_blocks.0"
---@param group table|nil     frozen, decay, lr_factor: for every parameter below; linear: for every
---   Linear below
---@return mr.Scope
function nn.scope(params, prefix, group)
  return setmetatable({params = params, prefix = prefix or "",
    group = read_group(group)}, Scope)
end

--- A scope below this one.
---@param name string        appended with a dot
---@param group table|nil     replaces fields of the group
function Scope:child(name, group)
  return nn.scope(self.params, self:name(name), nn.merged(self.group, group))
end

--- The full name of a parameter in this scope.
function Scope:name(name)
  return self.prefix == "" and name or self.prefix .. "." .. name
end

--- The ranks that share its layers.
---@return mr.Split
function Scope:split() return self.group.split or split.none end

--- Declares a parameter; returns its full name.
---@param name string
---@param shape table
---@param init table          {kind = "zeros|ones|normal|uniform|xavier|values", scale =, values =}
---@param extra table|nil     frozen, buffer, lookup, cut
function Scope:add(name, shape, init, extra)
  local full = self:name(name)
  local row = {name = full, shape = shape, init = init, frozen = self.group.frozen,
    outside = self.group.outside, model = self.group.model,
    decay = self.group.decay, lr_factor = self.group.lr_factor}
  for k, v in pairs(extra or {}) do
    row[k] = v
  end
  self.params:add(row)
  return full
end

-- ---- layers ----

--- Calls f, which adds the nodes of a block.
---@param g mr.Graph
---@param name string
---@param recompute boolean  the backward pass repeats what f adds
---@param away mr.Value[]    inputs of f that are kept in host memory for that
---@param f function
---@return any ...           results of f
function nn.block(g, name, recompute, away, f)
  for _, value in ipairs(recompute and away or {}) do
    g:offload(value)
  end
  return g:block(name, recompute, f)
end

--- Applies layers one after another.
---@param list fun(g: mr.Graph, x: any): any[]
---@param g mr.Graph
---@param x any                input of the first layer, mostly a value
---@param first integer|nil    the first and the last layer to apply; absent: all
---@param last integer|nil
---@return any                 result of the last one
function nn.chain(list, g, x, first, last)
  for i = first or 1, last or #list do
    x = list[i](g, x)
  end
  return x
end

local Linear = class()

local read_linear = options.declare("nn.Linear", {
  { "init", "table", "initialisation of the weight: {kind =, scale =}; absent: xavier",
    default = { kind = "xavier" } },
  { "bias_init", "table", "initialisation of the bias; absent: zeros",
    default = { kind = "zeros" } },
  { "bias", "boolean", "false: no bias", default = true },
  { "shape", "table", "shape of the stored weight, if it is not [outputs, inputs]" },
  { "columns", "table", "parts of the outputs, of each of which ranks that share layers have a "
    .. "share" },
  { "rows", "table", "parts of the inputs, in the same way" },
})

--- y = x w' + b over the last axis. Xavier uniform weight, zero bias.
---@param scope mr.Scope
---@param name string
---@param inputs integer
---@param outputs integer
---@param given table|nil     init (of the weight), bias_init, bias = false, shape (of the stored
---   weight); columns, rows: how ranks that share layers divide it. Divided by columns, it takes
---   tokens of all ranks and gives this rank's outputs. Divided by rows, it takes this rank's
---   inputs (for several parts a list of values) and gives this rank's tokens
function nn.Linear(scope, name, inputs, outputs, given)
  local o = read_linear(given)
  local s = scope:child(name)
  local ranks = s:split()
  local self = setmetatable({outputs = o.columns and ranks:share(outputs) or outputs,
    inputs = o.rows and ranks:share(inputs) or inputs, f8 = s.group.linear == "f8", ranks = ranks,
    parts = o.rows}, Linear)
  local by_columns, by_rows = o.columns and ranks:cut(0, o.columns),
    o.rows and ranks:cut(1, o.rows)
  self.weight = s:add("weight", o.shape or {outputs, inputs}, o.init,
    {cut = by_columns or by_rows})
  if o.bias then
    self.bias = s:add("bias", {outputs}, o.bias_init, {cut = by_columns})
  end
  return self
end

local function product(self, x, w, bias)
  if self.f8 then
    return nn.linear_f8(x, w, bias)
  end
  return (ops.linear(x, w, bias))
end

-- the sum over all ranks' inputs, for this rank's tokens; a weight with several parts has them one
-- after another
local function by_rows(self, g, list)
  local w, at, y = g:param(self.weight), 0, nil
  for i, x in ipairs(list) do
    local n = self.ranks:share(self.parts[i])
    local part = #list == 1 and w or w:slice(0, at, at + self.outputs * n):reshape{self.outputs, n}
    local of_part = product(self, x, part, false)
    y, at = y and y + of_part or of_part, at + self.outputs * n
  end
  y = self.ranks:reduce(g, y)
  local bias = self.bias and self.ranks:shared(g, g:param(self.bias))
  return bias and y + nn.spread(bias, {#y.shape - 1}, y.shape) or y
end

function Linear:forward(g, x)
  local list = type(x) == "table" and x or nil
  if self.parts and self.ranks.ranks > 1 then
    return by_rows(self, g, list or {x})
  end
  local w = g:param(self.weight)
  if #w.shape ~= 2 then
    w = w:reshape{self.outputs, self.inputs}
  end
  return product(self, list and G.concat(list, #list[1].shape - 1) or x, w,
    self.bias and g:param(self.bias) or false)
end

local LayerNorm = class()

--- Layer norm over the last axis with weight and bias.
function nn.LayerNorm(scope, name, width, eps)
  local s = scope:child(name)
  return setmetatable({eps = eps or 1e-6, weight = s:add("weight", {width}, {kind = "ones"}),
    bias = s:add("bias", {width}, {kind = "zeros"})}, LayerNorm)
end

function LayerNorm:forward(g, x)
  return (ops.layer_norm(x, g:param(self.weight), g:param(self.bias), {eps = self.eps}))
end

local RMSNorm = class()

--- Root mean square norm over the last axis with a weight; no mean, no bias.
function nn.RMSNorm(scope, name, width, eps)
  return setmetatable({eps = eps, width = width,
    weight = scope:child(name):add("weight", {width}, {kind = "ones"})}, RMSNorm)
end

function RMSNorm:forward(g, x)
  return (ops.rms_norm(x, g:param(self.weight), {eps = self.eps}))
end

local Mlp = class()

local read_mlp = options.declare("nn.Mlp", {
  { "fc2_init", "table", "initialisation of the second weight: {kind =, scale =}" },
})

--- Linear, GELU (tanh form), Linear; parameters fc1 and fc2. Ranks that share layers share its
-- hidden layer.
---@param given table|nil     fc2_init: initialisation of the second weight
function nn.Mlp(scope, name, inputs, hidden, outputs, given)
  local s, o = scope:child(name), read_mlp(given)
  return setmetatable({split = s:split(), fc1 = nn.Linear(s, "fc1", inputs, hidden,
    {columns = {hidden}}), fc2 = nn.Linear(s, "fc2", hidden, outputs, {init = o.fc2_init,
    rows = {hidden}})}, Mlp)
end

---@param x mr.Value
---@param tokens integer|nil  tokens of all ranks that share layers; nil: x has all of them
function Mlp:forward(g, x, tokens)
  x = self.split:gather(g, x, tokens)
  return self.fc2(g, (ops.gelu_tanh(self.fc1(g, x))))
end

local SelfAttention = class()

local function heads_of(who, o)
  return o.heads or require("moonreel.core.base").raise("MR_E_USAGE", who .. ": heads is "
    .. "missing; expected the number of attention heads")
end

local read_self_attention = options.declare("nn.SelfAttention", {
  { "heads", "integer", "number of heads, a divisor of the width; required" },
  { "qk_norm", "boolean", "RMS norm of queries and keys per head", default = true },
  { "proj_init", "table", "initialisation of the last weight: {kind =, scale =}" },
})

--- Self attention over one axis of [B, T, S, D], with heads next to each other in D; q and k are
-- normalised per head.
---@param given table  heads, qk_norm (true), proj_init
function nn.SelfAttention(scope, name, width, given)
  local s, o = scope:child(name), read_self_attention(given)
  local d = width // heads_of("nn.SelfAttention", o)
  local ranks = s:split()
  local self = setmetatable({width = ranks:share(width), heads = ranks:share(o.heads), d = d,
    split = ranks}, SelfAttention)
  self.qkv = nn.Linear(s, "qkv", width, 3 * width, {columns = {width, width, width}})
  if o.qk_norm then
    self.q_norm = s:add("q_norm.weight", {d}, {kind = "ones"})
    self.k_norm = s:add("k_norm.weight", {d}, {kind = "ones"})
  end
  self.proj = nn.Linear(s, "proj", width, width, {init = o.proj_init, rows = {width}})
  return self
end

-- norm and rotation of queries or keys; either may be absent
local function prepare(self, g, x, norm, rope)
  local cos, sin = false, false
  if rope then
    cos, sin = rope.cos, rope.sin
  end
  if norm then
    return (ops.qk_norm(x, self.split:shared(g, g:param(norm)), cos, sin, {eps = 1e-6}))
  end
  if rope then
    return (ops.rotary(x, cos, sin))
  end
  return x
end

local read_attend = options.declare("SelfAttention:forward", {
  { "temporal", "boolean", "attend along T instead of S" },
  { "rope", "table", "rotation {cos, sin}: f32 [N, d/2]" },
  { "len", "mr.Value", "i32 [B]: keys in use" },
  { "sequence", "mr.Sequence", "ranks that share the axis S (moonreel.nn.sequence)" },
  { "tokens", "integer", "tokens of that axis on all these ranks" },
  { "here", "integer", "tokens of that axis on all ranks that share layers" },
})

--- Attends along S ("spatial") or along T ("temporal": permuted views, no copies).
---@param x mr.Value          [B, T, S, D]
---@param given table|nil     temporal; rope {cos, sin} f32 [N, d/2]; len i32 [B]: keys in use;
---   sequence: ranks that share S, tokens: S over all of them; here: tokens of S, if ranks share
---   layers and x has some of them
---@return mr.Value           in the shape of x
function SelfAttention:forward(g, x, given)
  local how = read_attend(given)
  x = self.split:gather(g, x, how.here)
  local B, T, S = x.shape[1], x.shape[2], x.shape[3]
  local qkv = self.qkv(g, x):reshape{B, T, S, 3, self.heads, self.d}
  local part = {}
  for i, value in ipairs{qkv:split(3, 3)} do
    value = value:reshape{B, T, S, self.heads, self.d}
    part[i] = how.temporal and value:permute{0, 2, 1, 3, 4} or value
  end
  local q = prepare(self, g, part[1], self.q_norm, how.rope)
  local k = prepare(self, g, part[2], self.k_norm, how.rope)
  local o, lse
  if how.sequence and not how.temporal then
    o = how.sequence:attend(g, q, k, part[3], how.tokens)
  else
    o, lse = ops.attention(q, k, part[3], how.len or false)
    g:save(lse)
  end
  g:save(o)
  if how.temporal then
    o = o:permute{0, 2, 1, 3, 4}
  end
  return self.proj(g, o:reshape{B, T, S, self.width})
end

local CrossAttention = class()

local read_cross_attention = options.declare("nn.CrossAttention", {
  { "heads", "integer", "number of heads, a divisor of the width; required" },
  { "proj_init", "table", "initialisation of the last weight: {kind =, scale =}" },
})

--- Every token of [B, T, S, D] attends to the text [B, L, D]. No norm of q and k, no rotation.
---@param given table  heads, proj_init
function nn.CrossAttention(scope, name, width, given)
  local s, o = scope:child(name), read_cross_attention(given)
  local ranks, heads = s:split(), heads_of("nn.CrossAttention", o)
  local self = setmetatable({width = ranks:share(width), heads = ranks:share(heads),
    d = width // heads, split = ranks}, CrossAttention)
  self.q_linear = nn.Linear(s, "q_linear", width, width, {columns = {width}})
  self.kv_linear = nn.Linear(s, "kv_linear", width, 2 * width, {columns = {width, width}})
  self.proj = nn.Linear(s, "proj", width, width, {init = o.proj_init, rows = {width}})
  return self
end

---@param x mr.Value          [B, T, S, D]
---@param y mr.Value          [B, L, D]
---@param len mr.Value|nil    i32 [B]: text tokens in use; nil: all
---@param here integer|nil    tokens of S, if ranks share layers and x has some of them
---@return mr.Value           in the shape of x
function CrossAttention:forward(g, x, y, len, here)
  x = self.split:gather(g, x, here)
  local B, T, S = x.shape[1], x.shape[2], x.shape[3]
  local L = y.shape[2]
  local q = self.q_linear(g, x):reshape{B, 1, T * S, self.heads, self.d}
  local k, v = self.kv_linear(g, y):reshape{B, 1, L, 2, self.heads, self.d}:split(3, 2)
  local shape = {B, 1, L, self.heads, self.d}
  local o, lse = ops.attention(q, k:reshape(shape), v:reshape(shape), len or false)
  g:save(o)
  g:save(lse)
  return self.proj(g, o:reshape{B, T, S, self.width})
end

local ScalarEmbedder = class()

local read_embedder = options.declare("nn.ScalarEmbedder", {
  { "first_init", "table", "initialisation of the first weight: {kind =, scale =}" },
  { "second_init", "table", "initialisation of the second weight" },
})

--- Embeds a number per sample into [B, D]: sinusoid of 256 values (cosines first), Linear, SiLU,
-- Linear ("mlp.0", "mlp.2").
---@param given table|nil     first_init, second_init: initialisation of the weights
function nn.ScalarEmbedder(scope, name, width, given)
  local s, o = scope:child(name), read_embedder(given)
  return setmetatable({first = nn.Linear(s, "mlp.0", 256, width, {init = o.first_init}),
    second = nn.Linear(s, "mlp.2", width, width, {init = o.second_init})}, ScalarEmbedder)
end

---@param v mr.Value  f32 [B]
function ScalarEmbedder:forward(g, v, dtype)
  local wave = nn.cast((ops.sincos(v, {dim = 256})), dtype)
  return self.second(g, (ops.silu(self.first(g, wave))))
end

local Embedding = class()

--- Rows of a table, summed over the last axis of the ids; id -1 adds nothing.
---@param columns table|nil  parts of a row; of each part, ranks that share layers have a share
function nn.Embedding(scope, name, rows, width, scale, columns)
  return setmetatable({weight = scope:child(name):add("weight", {rows, width},
    {kind = "normal", scale = scale or 0.02},
    {lookup = true, cut = columns and scope:split():cut(1, columns) or nil})}, Embedding)
end

---@param ids mr.Value  i32 [..., K]
function Embedding:forward(g, ids)
  return (ops.embedding(ids, g:param(self.weight)))
end

-- ---- helpers ----

--- The fields of several tables; later tables override earlier ones.
---@param ... table|nil
---@return table
function nn.merged(...)
  local out = {}
  for i = 1, select("#", ...) do
    for k, v in pairs((select(i, ...)) or {}) do
      out[k] = v
    end
  end
  return out
end

--- The value in another dtype; the same value if it already has that dtype.
function nn.cast(x, dtype)
  if x.dtype == dtype then
    return x
  end
  return (ops.cast(x, {dtype = dtype}))
end

--- y = x w' + b with x, w and, in the gradient, dy as floats of 8 bits. Each tensor has its own
-- scale for this step: e4m3 forward, e5m2 for dy. Gradients are those of `ops.linear`, rounded in
-- this way, except that of b. If a tensor has a non-finite element, all of y is NaN. Ref: torchao
-- v0.9, float8, dynamic tensorwise scaling.
---@param x mr.Value          [..., K] f32|bf16, K a multiple of 16
---@param w mr.Value          [N, K] f32|bf16, N a multiple of 16
---@param b mr.Value|boolean  [N] like w; false: no bias
---@return mr.Value y         [..., N] like x
function nn.linear_f8(x, w, b)
  local q, scale, q_t = ops.quantise_f8(x, { transposed = true })
  local wq, w_scale, wq_t = ops.quantise_f8(w, { transposed = true })
  -- products of 8 bits add a bias in bf16
  local inside = b and b.dtype == "bf16" and b or false
  local y = ops.linear_f8(q, scale, wq, w_scale, inside, q_t, wq_t, x, w, { dtype = x.dtype })
  return b and not inside and y + nn.spread(b, { #y.shape - 1 }, y.shape) or y
end

--- Rounds a number to bf16, ties to even.
---@param x number
function nn.round_bf16(x)
  local bits = string.unpack("<I4", string.pack("<f", x))
  if x ~= x then
    return x
  end
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000
  return (string.unpack("<f", string.pack("<I4", bits)))
end

--- Gives a value of shape [.., C] new axes of length 1 at `axes` of the result (counted from 0) and
-- expands it to `shape`.
---@param x mr.Value
---@param keep table   for each axis of x, its axis in the result
---@param shape table
function nn.spread(x, keep, shape)
  local with_ones = {}
  for i = 1, #shape do
    with_ones[i] = 1
  end
  for i, axis in ipairs(keep) do
    with_ones[axis + 1] = x.shape[i]
  end
  return x:reshape(with_ones):expand(shape)
end

return nn
