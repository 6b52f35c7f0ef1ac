--- Seconds of collectives, compared with figures modelled for eight H100 a node.
local collective = require "moonreel.plan.collective"
local machine = require "moonreel.plan.machine"

local function close(want, got, share)
  assert.is_true(math.abs(got - want) <= share * math.abs(want),
    ("%g, expected %g"):format(got, want))
end

describe("a collective", function()
  local m = machine.open "H100"

  it("waits for its slowest steps: 1.05 ms at 224 GPUs and 4.8 ms at 1,024 in one ring", function()
    close(1.05e-3, collective.ring_latency(m, { gpus = 8, nodes = 28 }), 0.01)
    close(4.8e-3, collective.ring_latency(m, { gpus = 8, nodes = 128 }), 0.01)
  end)

  it("waits 0.13 and 0.43 ms in two hops", function()
    for nodes, want in pairs { [28] = 0.13e-3, [128] = 0.43e-3 } do
      local intra, inter = collective.two_hops(m, { gpus = 8, nodes = nodes }, 0)
      close(want, intra + inter, 0.07)
    end
  end)

  it("moves (n - 1) / n of the bytes over its slowest link", function()
    local function rate(group)
      local bytes = 1e12
      return bytes * (group.gpus * group.nodes - 1) / (group.gpus * group.nodes)
        / (collective.flat(m, group, bytes) - collective.ring_latency(m, group))
    end
    close(370e9, rate { gpus = 8, nodes = 1 }, 1e-9)
    close(8 * 46e9, rate { gpus = 8, nodes = 2 }, 1e-9)
    -- between nodes each GPU sends its eighth over its own card
    local none = select(2, collective.two_hops(m, { gpus = 8, nodes = 4 }, 0))
    local inter = select(2, collective.two_hops(m, { gpus = 8, nodes = 4 }, 8e9))
    close(1e9 * 3 / 4 / 46e9, inter - none, 1e-9)
  end)

  it("of one rank, or between the nodes of one node, takes no time", function()
    assert.equal(0, collective.flat(m, { gpus = 1, nodes = 1 }, 1e9))
    assert.equal(0, select(2, collective.two_hops(m, { gpus = 8, nodes = 1 }, 1e9)))
  end)
end)
