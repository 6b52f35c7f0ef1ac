--- The page of a plan is complete and self-contained, and text of a recipe is never markup in it.
local compiled = require "moonreel.plan.compiled"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local mesh = require "moonreel.plan.mesh"
local page = require "moonreel.plan.page"
local plan = require "moonreel.plan"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local show = require "moonreel.plan.show"

-- tags that are open and never closed, in order
local function unbalanced(html)
  local open, alone = {}, { meta = true, ["!doctype"] = true }
  for close, name, rest in html:gmatch("<(/?)([%a!][%w]*)([^>]*)>") do
    name = name:lower()
    if close == "/" then
      if open[#open] ~= name then
        return ("</%s> closes <%s>"):format(name, tostring(open[#open]))
      end
      open[#open] = nil
    elseif not alone[name] and not rest:find("/$") then
      open[#open + 1] = name
    end
  end
  return open[1]
end

describe("the page of a plan", function()
  local html, p
  setup(function()
    local of = mesh.parse "4x8xH100"
    local cache <close> = compiled.new(of.machine)
    p = plan.of(settings.bake("tiny/demo", { "name=<b>&\"x\"", "model.depth=1" }),
      { mesh = of, compiled = cache })
    html = page.html { p }
  end)

  it("is complete and loads nothing", function()
    assert.is_nil(unbalanced(html))
    assert.matches("^<!doctype html>", html)
    for _, word in ipairs { "http", "<script", "<link", "src=", "@import" } do
      assert.is_nil(html:find(word, 1, true), word)
    end
  end)

  it("shows memory over the step, each bucket, each stream", function()
    local points = html:match('<polygon points="([^"]*)"')
    assert.equal(200 + 2, select(2, points:gsub(",", "")))
    for _, b in ipairs(p.buckets) do
      assert.is_truthy(html:find("<td>" .. plan.bucket_name(b) .. "</td>", 1, true))
    end
    for _, want in ipairs { "<b>computing</b>", "<b>exchange between nodes</b>", 'title="backward ',
        "<td>activations and workspace</td>", "<li>H100: the planned workspace" } do
      assert.is_truthy(html:find(want, 1, true), want)
    end
  end)

  it("names stage and recipe, and has axes that end at the drawn values", function()
    local one = page.html { setmetatable({ stage = "b", name = p.recipe }, { __index = p }) }
    assert.matches("<title>recipes/tiny/demo.lua, stage b</title>", one)
    local longest = show.seconds(p.slowest.seconds.step)
    local heading, drawn, added = html:match("The longest step, bucket [^:]*: ([^<]*)</h2>\n"
      .. "<p>drawn are ([^,<]*), the slowest rank adds ([^<]*)</p>")
    assert.equal(longest, heading)
    assert.equal(show.seconds(p.slowest.schedule.seconds), drawn)
    assert.equal(show.seconds(p.slowest.seconds.slowest), added)
    for _, last in ipairs { longest, drawn, "85.5 GB", "100 %" } do
      local tick = '<span style="left:100%">' .. last .. "</span></div>"
      assert.is_truthy(html:find(tick, 1, true), last)
    end
  end)

  -- a browser lays it out and reports the sizes of its elements
  it("is drawn by a browser, with nothing wider than its window", function()
    local browser = process.run({ "/bin/sh", "-c", "command -v chromium || command -v chrome" }, "",
      { deadline_s = 10 }).output:gsub("%s+$", "")
    if browser == "" then
      pending("no browser is installed: chromium")
      return
    end
    local dir = folder.new()
    finally(function() dir:remove() end)
    local measured = html:gsub("</body>", function()
      return [[<script>
        const box = (what) => { const b = document.querySelector(what).getBoundingClientRect();
          return [Math.round(b.width), Math.round(b.height)] };
        document.title = "measured " + JSON.stringify({ page: document.documentElement.scrollWidth,
          window: window.innerWidth, curve: box("polygon"), bar: box(".bar"), row: box(".row"),
          rows: document.querySelectorAll("tr").length })
        </script></body>]]
    end)
    local done = process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2> /dev/null', browser,
      "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" .. dir.path .. "/profile",
      "--window-size=1100,1800", "--dump-dom", "file://" .. dir:write("page.html", measured) }, "",
      { deadline_s = 600 })
    local said = done.output:match("<title>measured ([^<]*)</title>")
    assert.is_truthy(said, done.output)
    local size = json.decode(said)
    assert.is_true(size.page <= size.window, said)
    assert.is_true(size.curve[1] > 300 and size.curve[2] > 50, said)
    assert.is_true(size.bar[1] > 100 and size.bar[2] > 5 and size.row[1] > 300, said)
    assert.is_true(size.rows > #p.buckets + 10, said)
  end)

  it("of stages has their sum, and each of them", function()
    local one, two = setmetatable({ stage = "a<b", course = { from = "x", steps = 3, step_s = 1,
      hours = 2, gpu_hours = 64, disk_bytes = 5, cost = 7 } }, { __index = p }),
      setmetatable({ stage = "c" }, { __index = p })
    local whole = page.html { one, two }
    assert.is_nil(unbalanced(whole))
    assert.matches("<td>total of known steps</td><td></td><td></td><td></td><td>3</td>", whole)
    assert.matches("<section><h1>Stage a&lt;b</h1>.*3 steps %(x%): 2.0 h, 64 GPU hours, cost 7 at "
      .. "2.99 for a GPU's hour", whole)
    assert.equal(2, select(2, whole:gsub("<polygon", "")))
  end)

  it("shows a recipe's text as text", function()
    assert.is_nil(html:find("<b>&\"", 1, true))
    assert.matches("<h1>&lt;b&gt;&amp;&quot;x&quot; %(recipes/tiny/demo.lua%) on 4 x 8 H100</h1>",
      html)
  end)
end)
