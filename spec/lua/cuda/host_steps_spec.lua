--- A step without a GPU kernel: an error when its graph is compiled, or work on the host.
-- Covers: core/exec/step.c core/exec/exec.c cuda/rt/host_step.c core/bind/device.c
-- lua/moonreel/trainer/setup.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- builds with sanitizers have no emulated GPU
local plugin = process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so")
local describe_built = base.exists(plugin) and describe or pending

-- f64, for which the GPU has no kernels
local function graph()
  local g = G.graph()
  local x = g:input("x", "f64", { 2, 3 })
  g:output("y", (G.op("add", { x, x }, {})))
  g:finish()
  return g
end

describe_built("steps without a kernel", function()
  it("run on the host unless they are refused", function()
    local device <close> = E.device("cudaemu", 1)
    local exec <close> = E.new(device)
    local prog = exec:compile(graph())
    prog:set("x", T.from({ 2, 3 }, { 1, 2, 3, 4, 5, 6 }, "f64"))
    prog:run()
    assert.same({ 2, 4, 6, 8, 10, 12 }, prog:get("y"):totable())
  end)

  it("do not occur for edges of convolutions, which only GPU kernels support", function()
    local device <close> = E.device("cudaemu", 1)
    local on <close> = E.new(device)
    local planned <close> = E.plan(nil, { facts = device:facts() })
    local host <close> = E.new(E.device("cpu", 1))
    assert.same({ true, true, false }, { on:edges(), planned:edges(), host:edges() })
    assert.same({ true, false }, { G.graph(nil, { edges = true }):edges(), G.graph():edges() })
  end)

  it("are refused by name and shapes, on the device and when it is planned", function()
    local device <close> = E.device("cudaemu", 1)
    device:refuse_host()
    local on <close> = E.new(device)
    local planned <close> = E.plan(nil, { facts = device:facts() })
    for _, exec in ipairs { on, planned } do
      local good, problem = pcall(exec.compile, exec, graph())
      assert.is_false(good)
      assert.equal("MR_E_UNSUPPORTED", problem.code)
      assert.matches("host_steps_spec%.lua:%d+: add 'add#0': cudaemu has no kernel for "
        .. "%[2, 3%] f64, %[2, 3%] f64; [^\n]*; try: [^\n]*host_steps = \"allow\"",
        tostring(problem))
    end
  end)

  it("do not occur on a CPU", function()
    local device <close> = E.device("cpu", 1)
    device:refuse_host()
    assert.is_false(device:facts().host_refused)
  end)

  it("are refused by a training run unless its recipe allows them", function()
    local dir <close> = folder.new()
    os.execute(("mkdir '%s/plugins' && ln -s '%s' '%s/plugins/libmoonreel_cuda.so'"):format(
      dir.path, plugin, dir.path))
    for words, refused in pairs { [""] = "true", ["host_steps=allow"] = "false" } do
      local out, err = folder.moonreel(([[-e '
        require("moonreel.trainer.predict").run = function(r)
          print("refused:", r.facts.host_refused)
          os.exit(0)
        end
        require("moonreel.cli.dispatch").run(arg)' train tiny/demo device=cuda outputs='%s' ]]
        .. [[model.depth=1 model.hidden_size=32 model.num_heads=2 text_encoder.width=32 ]]
        .. [[model.caption_channels=32 dataset.data_path='%s' %s]]):format(dir.path,
        demo_data.path(), words), ("MOONREEL_PLUGINS='%s/plugins'"):format(dir.path))
      assert.matches("refused:\t" .. refused, out, nil, nil, err)
    end
    demo_data.remove()
  end)
end)
