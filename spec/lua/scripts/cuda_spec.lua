--- scripts/cuda, with a compiler that only says what ptxas says.
local folder = require "spec.support.folder"
local base = require "moonreel.core.base"
local process = require "moonreel.core.process"

local NVCC = [[
#!/bin/sh
case "$*" in *--version*) echo "release 1"; echo; exit ;; esac
while [ $# -gt 0 ]; do
  case $1 in -o) object=$2 ;; -MF) needs=$2 ;; -c) source=$2 ;; esac
  shift
done
: > "$object"
[ -z "$needs" ] || echo "$object: $source" > "$needs"
echo "ptxas info    : Compiling entry function '_Z3onev' for 'sm_80'"
echo "    16 bytes stack frame, 0 bytes spill stores, ${SPILLED:-0} bytes spill loads"
echo "ptxas info    : Used 24 registers, 380 bytes cmem[0]"
]]

describe("scripts/cuda", function()
  local tree, script

  -- what it says of kernels; the plug-in cannot be linked here
  local function says(...)
    local command = { "env", "NVCC=" .. tree.path .. "/nvcc", "CUOBJDUMP=", ... }
    table.move({ "sh", "-c", "exec '" .. script .. "' 2>&1" }, 1, 3, #command + 1, command)
    return process.run(command, "", { deadline_s = 60 }).output
  end

  before_each(function()
    tree = folder.new()
    script = tree:write("scripts/cuda", base.read_file "scripts/cuda")
    tree:write("nvcc", NVCC)
    os.execute(("chmod +x '%s' '%s/nvcc'"):format(script, tree.path))
    for _, name in ipairs { "cuda/kernels/one.cu", "cuda/x/y_sm90a.cu", "spec/cuda/prim/sm80.cu",
      "spec/cuda/prim/sm90a.cu" } do
      tree:write(name, "")
    end
  end)
  after_each(function() tree:remove() end)

  it("tells of each kernel, also before the emulator is built", function()
    local said = says()
    assert.matches("\nsm_80 +24 +0 +16 +%- +%- +%-  one\n", said)
    assert.not_matches("spilled", said)
  end)

  it("tells what the emulator launched it with, at most", function()
    for name, launched in pairs { contract = "one 256 1024", attention = "one 384 65536" } do
      local program = tree:write("build/cpu/spec_cuda_kernels_" .. name,
        "#!/bin/sh\n[ $1 = --launches ] && echo launched " .. launched .. "\n")
      os.execute(("chmod +x '%s'"):format(program))
    end
    assert.matches("\nsm_80 +24 +0 +16 +65536 +384 +38%%  one\n", says())
  end)

  it("refuses registers that are spilled", function()
    assert.matches("cuda/kernels/one.cu: registers are spilled", says "SPILLED=8")
  end)
end)
