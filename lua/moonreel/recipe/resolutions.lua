--- Resolutions of Open-Sora 1.2 in the form in which a recipe writes them: name -> pixels and
-- aspects {height over width, height, width}. Built from the data room's table; the order of that
-- table decides between two ratios that are equally near. Ref: opensora-1.2.md 4.4.
local named = {}
for _, r in ipairs(require "moonreel.data.resolutions") do
  local aspects = {}
  for i, a in ipairs(r.aspects) do
    aspects[i] = { tonumber(a[1]) + 0.0, a[2], a[3] }
  end
  named[r.name] = { pixels = r.pixels, aspects = aspects }
end
return named
