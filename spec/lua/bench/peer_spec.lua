local run = require "spec.support.bench_run"

describe("a peer, named by --python,", function()
  local peer = require "moonreel.bench.peer"
  local python = os.tmpname()
  local function answers(shell)
    local f <close> = assert(io.open(python, "w"))
    f:write("#!/bin/sh\n[ \"$1\" = -c ] && exit\n", shell, "\n")
    f:close()
    os.execute("chmod +x " .. python)
  end
  teardown(function() os.remove(python) end)

  it("is compared with the PyTorch of that interpreter", function()
    answers([[echo '{"name": "PyTorch", "version": "9.9", "dtype": "float32", "seconds": 1000,' \
      '"runs": 1, "product_tflops": 1, "peak_bytes": 1, "import_bytes": 0}']])
    local text, exit = run("demo-step", "--python", python, "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    assert.matches("PyTorch 9.9, float32 %(its products: 1.000 TFLOP/s%), one run: 1000.0000 s",
      text)
  end)

  it("is left out with a reason when there is no comparison", function()
    answers([[echo '{"name": "PyTorch", "version": "9.9", "least_seconds": 118}']])
    local result, reason = peer.run(python, "step", {})
    assert.is_nil(result)
    assert.matches("PyTorch 9.9 would need at least 118 s", reason)
    answers("exec sleep 20")
    peer.deadline_s = 0.2
    result, reason = peer.run(python, "step", {})
    assert.is_nil(result)
    assert.matches("did not finish in 0.2 s", reason)
    -- the first turn, in which a peer compiles, has a longer limit
    peer.compile_s = 0.4
    for _, way in ipairs { "both", "compiled" } do
      assert.matches("did not finish in 0.4 s", select(2, peer.run(python, "step", { way = way })))
    end
  end)

  it("is missing when the interpreter does not exist", function()
    local result, reason = peer.data("/no/python3", "pyav", {})
    assert.is_nil(result)
    assert.matches("cannot start /no/python3", reason, 1, true)
  end)

  it("is refused without PyTorch before anything is measured", function()
    local _, exit = run("step", "--python=/no/python")
    assert.equal(2, exit)
  end)
end)
