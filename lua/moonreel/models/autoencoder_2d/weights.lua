--- Files of Flux's autoencoder of pictures. Those of diffusers have other names, count levels of
-- the decoder from the coarsest one, and store the attention's kernels as matrices. Ref:
-- weights.md.
local T = require "moonreel.core.tensor"
local kl = require "moonreel.models.autoencoder_2d.kl"

local diffusers, flux = kl.names.diffusers, kl.names.flux

-- a rename rule for a name of diffusers: prefix and suffix
local function rule(list, from, to)
  list[#list + 1] = { "^(%w+%.)" .. from:gsub("%p", "%%%0"), "%1" .. to }
end

local function plain(name) return (name:gsub("%.%%d$", "")) end

-- levels of the decoder
local function levels(has)
  local n = 0
  while has[("decoder.up_blocks.%d.resnets.0.conv1.weight"):format(n)] do
    n = n + 1
  end
  return n
end

local function rules(has)
  local list, n = {}, levels(has)
  for i = 0, n - 1 do
    rule(list, plain(diffusers.up) .. "." .. i .. ".", "up#." .. n - 1 - i .. ".")
  end
  rule(list, "up#", plain(flux.up))
  rule(list, plain(diffusers.down), plain(flux.down))
  for i, product in ipairs(diffusers.products) do
    rule(list, diffusers.attention .. "." .. product .. ".", flux.attention .. "."
      .. flux.products[i] .. ".")
  end
  rule(list, diffusers.attention .. "." .. diffusers.norm, flux.attention .. "." .. flux.norm)
  for _, field in ipairs { "first", "second", "last" } do
    rule(list, diffusers[field], flux[field])
  end
  for _, field in ipairs { "block", "smaller", "larger", "shortcut" } do
    list[#list + 1] = { "%." .. plain(diffusers[field]):gsub("%p", "%%%0"),
      "." .. plain(flux[field]) }
  end
  return list
end

-- converts matrices to kernels of one position
local function kernel(t, shape)
  if #t.shape == 2 and T.count(t.shape) == T.count(shape) then
    return t:reshape(shape), "a kernel of one position"
  end
end

local fit = {}
for _, half in ipairs { "encoder.", "decoder." } do
  for _, product in ipairs(flux.products) do
    fit[half .. flux.attention .. "." .. product .. ".weight"] = kernel
  end
end

local function is_flux(has) return has["encoder.down.0.block.0.conv1.weight"] end

local function is_diffusers(has)
  return has["encoder.down_blocks.0.resnets.0.conv1.weight"] and not has["quant_conv.weight"]
end

return {
  kinds = {
    { name = "autoencoder of pictures of Flux", is = is_flux,
      facts = { { "levels", "^encoder%.down%.(%d+)%." }, { "ch", "encoder.conv_in.weight", 1 },
        { "z_channels", "decoder.conv_in.weight", 2 } } },
    { name = "AutoencoderKL without quant convolutions", is = is_diffusers,
      facts = { { "levels", "^encoder%.down_blocks%.(%d+)%." },
        { "ch", "encoder.conv_in.weight", 1 }, { "z_channels", "decoder.conv_in.weight", 2 } } },
  },
  layouts = {
    { name = "AutoencoderKL", is = is_diffusers, rename = rules, dropped = {}, fresh = {} },
  },
  fit = fit,
}
