---@meta moonreel.core.op
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Ops on tensors and on values of graphs.
---@class moonreel.core.op
local op = {}

--- a + b, elementwise over equal shapes.
---@param a? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@return any
function op.add(a, b) end

--- scale * x + shift, elementwise.
---@param x? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.affine(x, attributes) end

--- Softmax attention per sample, group and head, with a bias, key counts and causal frames.
---@param q? mr.Tensor|mr.Value|false
---@param k? mr.Tensor|mr.Value|false
---@param v? mr.Tensor|mr.Value|false
---@param len? mr.Tensor|mr.Value|false
---@param bias? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
---@return any
function op.attention(q, k, v, len, bias, attributes) end

--- The same values in another dtype.
---@param x? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.cast(x, attributes) end

--- The nearest value from low to high, elementwise.
---@param x? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.clamp(x, attributes) end

--- Tensors joined along one axis.
---@param x0? mr.Tensor|mr.Value|false
---@param x1? mr.Tensor|mr.Value|false
---@param x2? mr.Tensor|mr.Value|false
---@param x3? mr.Tensor|mr.Value|false
---@param x4? mr.Tensor|mr.Value|false
---@param x5? mr.Tensor|mr.Value|false
---@param x6? mr.Tensor|mr.Value|false
---@param x7? mr.Tensor|mr.Value|false
---@param x8? mr.Tensor|mr.Value|false
---@param x9? mr.Tensor|mr.Value|false
---@param x10? mr.Tensor|mr.Value|false
---@param x11? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.concat(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, attributes) end

--- Convolution of channels-last volumes with strides, groups, and padding per axis and side by zeros or edges.
---@param x? mr.Tensor|mr.Value|false
---@param w? mr.Tensor|mr.Value|false
---@param bias? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.conv3d(x, w, bias, attributes) end

--- The same values in dense memory.
---@param x? mr.Tensor|mr.Value|false
---@return any
function op.copy(x) end

--- a / b, elementwise over equal shapes.
---@param a? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@return any
function op.div(a, b) end

--- Sum of the table's rows that the last dimension of ids names; -1 adds nothing.
---@param ids? mr.Tensor|mr.Value|false
---@param table? mr.Tensor|mr.Value|false
---@return any
function op.embedding(ids, table) end

--- e to the power x, elementwise.
---@param x? mr.Tensor|mr.Value|false
---@return any
function op.exp(x) end

--- Rectified flow loss: weighted sum over samples of the mean square velocity error of the noised frames.
---@param pred? mr.Tensor|mr.Value|false
---@param x0? mr.Tensor|mr.Value|false
---@param noise? mr.Tensor|mr.Value|false
---@param weight? mr.Tensor|mr.Value|false
---@param mask? mr.Tensor|mr.Value|false
---@return any
---@return any
function op.flow_loss(pred, x0, noise, weight, mask) end

--- Mix clean latents with noise at time t on the straight line between them; masked-out frames stay clean.
---@param x0? mr.Tensor|mr.Value|false
---@param noise? mr.Tensor|mr.Value|false
---@param t? mr.Tensor|mr.Value|false
---@param mask? mr.Tensor|mr.Value|false
---@return any
function op.flow_mix(x0, noise, t, mask) end

--- Add a branch to the residual stream, scaled by a gate per sample, frame and channel.
---@param x? mr.Tensor|mr.Value|false
---@param gate? mr.Tensor|mr.Value|false
---@param a? mr.Tensor|mr.Value|false
---@return any
function op.gated_residual(x, gate, a) end

--- Gaussian error linear unit, tanh form, elementwise.
---@param x? mr.Tensor|mr.Value|false
---@return any
function op.gelu_tanh(x) end

--- Moments of groups of channels: mean, sum of squares around it, and count, over all positions of a sample, combined with the moments `before`.
---@param x? mr.Tensor|mr.Value|false
---@param before? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.group_moments(x, before, attributes) end

--- Normalise groups of channels over all positions of a sample, scale, shift, then SiLU.
---@param x? mr.Tensor|mr.Value|false
---@param w? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
---@return any
function op.group_norm(x, w, b, attributes) end

--- Normalise groups of channels by the given moments, scale, shift, then SiLU.
---@param x? mr.Tensor|mr.Value|false
---@param w? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@param moments? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.group_norm_by(x, w, b, moments, attributes) end

--- Normalise each row to zero mean and unit variance, then scale by w and add b.
---@param x? mr.Tensor|mr.Value|false
---@param w? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.layer_norm(x, w, b, attributes) end

--- Layer norm without affine, then scale and shift per sample, frame and channel.
---@param x? mr.Tensor|mr.Value|false
---@param shift? mr.Tensor|mr.Value|false
---@param scale? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.layer_norm_modulate(x, shift, scale, attributes) end

--- x times the transpose of w, plus b.
---@param x? mr.Tensor|mr.Value|false
---@param w? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@return any
function op.linear(x, w, b) end

--- y = x w^T + b of 8-bit operands, each times its scale; x_of and w_of get the gradients.
---@param x? mr.Tensor|mr.Value|false
---@param x_scale? mr.Tensor|mr.Value|false
---@param w? mr.Tensor|mr.Value|false
---@param w_scale? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@param x_t? mr.Tensor|mr.Value|false
---@param w_t? mr.Tensor|mr.Value|false
---@param x_of? mr.Tensor|mr.Value|false
---@param w_of? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.linear_f8(x, x_scale, w, w_scale, b, x_t, w_t, x_of, w_of, attributes) end

--- Matrix product over the last two dimensions; leading dimensions must be equal.
---@param a? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.matmul(a, b, attributes) end

--- Mean over the listed axes.
---@param x? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.mean(x, attributes) end

--- a * b, elementwise over equal shapes.
---@param a? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@return any
function op.mul(a, b) end

--- Pixels 0..255 as floats -1..1, in f32 or bf16.
---@param x? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.normalise_u8(x, attributes) end

--- Split [B, C, T, H, W] into tokens [B, T', H'*W', C*pt*ph*pw], with zeros beyond the end.
---@param x? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.patchify(x, attributes) end

--- RMS norm of each head of q or k, then the rotary embedding if cos and sin are given.
---@param x? mr.Tensor|mr.Value|false
---@param w? mr.Tensor|mr.Value|false
---@param cos? mr.Tensor|mr.Value|false
---@param sin? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.qk_norm(x, w, cos, sin, attributes) end

--- A tensor as 8-bit floats and their scale: the largest magnitude becomes the largest number of the format.
---@param x? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
---@return any
---@return any
function op.quantise_f8(x, attributes) end

--- Standard normal numbers per sample, a pure function of seed, purpose, sample key and epoch.
---@param seed? mr.Tensor|mr.Value|false
---@param keys? mr.Tensor|mr.Value|false
---@param epoch? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.random_normal(seed, keys, epoch, attributes) end

--- Scale each row of x to unit root mean square, then multiply by w.
---@param x? mr.Tensor|mr.Value|false
---@param w? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.rms_norm(x, w, attributes) end

--- Rotary position embedding on pairs of each head: neighbours, or elements half a head apart.
---@param x? mr.Tensor|mr.Value|false
---@param cos? mr.Tensor|mr.Value|false
---@param sin? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.rotary(x, cos, sin, attributes) end

--- x * sigmoid(x), elementwise.
---@param x? mr.Tensor|mr.Value|false
---@return any
function op.silu(x) end

--- Sinusoidal embedding of scalars: cosines then sines (or sines first) of v times falling frequencies.
---@param v? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.sincos(v, attributes) end

--- Square root, elementwise.
---@param x? mr.Tensor|mr.Value|false
---@return any
function op.sqrt(x) end

--- a - b, elementwise over equal shapes.
---@param a? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@return any
function op.sub(a, b) end

--- Sum over the listed axes.
---@param x? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.sum(x, attributes) end

--- Put tokens [B, T', H'*W', pt*ph*pw*C] back into [B, C, T, H, W], cropped.
---@param x? mr.Tensor|mr.Value|false
---@param attributes? table
---@return any
function op.unpatchify(x, attributes) end

--- a where the mask is true, else b; equal shapes.
---@param mask? mr.Tensor|mr.Value|false
---@param a? mr.Tensor|mr.Value|false
---@param b? mr.Tensor|mr.Value|false
---@return any
function op.where(mask, a, b) end

--- A tensor of zeros with the given shape.
---@param attributes? table
---@return any
function op.zeros(attributes) end

return op
