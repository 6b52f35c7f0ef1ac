--- Pictures as terminals show them.
describe("a picture", function()
  it("is the same for sixel and kitty terminals", function()
    local picture = require "moonreel.look.picture"
    local p = picture.from(2, 2, function(x, y) return x * 255, y * 255, 0 end)
    assert.equal("\27_Ga=T,f=24,s=2,v=2,m=0;AAAA/wAAAP8A//8A\27\\\n", picture.text(p, "kitty"))
    local sixel = picture.text(p, "sixel")
    assert.matches("^\27Pq", sixel)
    assert.matches("#180%?@", sixel)
  end)
end)
