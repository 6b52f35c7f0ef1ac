--- docs/prompt.md, followed as by a reader.
local page = require "spec.support.page"

describe("docs/prompt.md", function()
  it("works by copy and paste from an empty folder", function()
    local ran, wrong = 0, false
    for _, one in ipairs(page.follow "docs/prompt.md") do
      assert.equal(0, one.exit, one.words .. "\n" .. one.output)
      for _, input in ipairs(one.inputs) do
        wrong = wrong or input.line:find("^nosuch") ~= nil
        assert.is_truthy(input.output, input.line .. ": the prompt did not come so far")
        -- the last block is about errors
        if not wrong then
          assert.is_false(input.failed, input.line .. "\n" .. input.output)
          assert.is_nil(input.output:find("no name '", 1, true), input.line)
        end
        assert.is_truthy(input.output:find(input.want or "", 1, true),
          input.line .. "\n" .. input.output)
        ran = ran + 1
      end
    end
    assert.is_true(ran > 80, ran)
    assert.is_true(wrong)
  end)
end)
