--- Maps recipe files of the reference systems to our recipes with the same content.
-- @module moonreel.recipe.twins
local twins = {}

local renamed = { ["vae/inference/hunyuanvideo_vae"] = "vae/hunyuan",
  ["vae/inference/video_dc_ae"] = "vae/dc_ae",
  ["vae/train/video_dc_ae_disc"] = "vae/train_dc_ae_disc",
    ["vae/train/video_dc_ae"] = "vae/train_dc_ae" }

--- Names of the shipped recipes that correspond to a reference file. Open-Sora 1.2 and its Lambda
-- reproduction use one path for two recipes; a path that neither of them has means any recipe of
-- its name.
---@param path string      configs/diffusion/train/image.py
---@param shipped string[]  names of the shipped recipes
---@return string[]
function twins.of(path, shipped)
  local stem = path:gsub("^.*configs/", ""):gsub("%.py$", "")
  local of_1_2 = stem:match("^opensora%-v1%-2/(.*)$")
  local wanted = { ["opensora-2.0/" .. (renamed[stem] or stem:gsub("^diffusion/", ""))] = true }
  for _, folder in ipairs { "opensora-1.2/", "opensora-1.2/lambda/" } do
    if of_1_2 then
      wanted[folder .. of_1_2], wanted[folder .. of_1_2:gsub("^%a+/", "")] = true, true
    end
  end
  local exact, same_name = {}, {}
  for _, name in ipairs(shipped) do
    if wanted[name] then
      exact[#exact + 1] = name
    end
    if name:match("[^/]*$") == stem:match("[^/]*$") then
      same_name[#same_name + 1] = name
    end
  end
  return #exact > 0 and exact or same_name
end

return twins
