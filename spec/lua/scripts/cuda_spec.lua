--- scripts/cuda with a fake compiler that prints messages of ptxas. If nvcc is installed, it also
-- compiles what the emulator does not: the CUDA driver, and the PTX of each instruction and form.
-- Covers: cuda/rt/driver_cuda.cpp cuda/prim/sm80.cuh cuda/prim/sm90a.cuh
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
[ -z "$NOTE" ] || echo "$NOTE"
]]

describe("scripts/cuda", function()
  local tree, script

  -- its output about kernels; the plug-in cannot be linked here
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

  it("prints a line for each kernel, also before the emulator is built", function()
    local said = says()
    assert.matches("\nsm_80 +24 +0 +16 +%- +%- +%-  one\n", said)
    assert.not_matches("spilled", said)
  end)

  it("prints the largest launch of the emulator", function()
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

  -- messages of ptxas about warp-group products
  for note, refused in pairs { C7500 = true, C7518 = true, C7519 = true, C7520 = false } do
    it(("%s %s"):format(refused and "refuses" or "accepts", note), function()
      local said = says(("NOTE=ptxas info : (%s) in function 'one'"):format(note))
      local found = said:find("kernels/one.cu: ptxas serialises warp-group products", 1, true)
      assert.equal(refused, found ~= nil, said)
    end)
  end
end)

-- names that an object defines, or needs from others
local function names_of(object, option)
  local list, done = {}, process.run({ "nm", option, object }, "", { deadline_s = 60,
    output_bytes = 1 << 20 })
  assert.equal(0, done.exit, done.output)
  for name in done.output:gmatch " [UTDBRC] ([%w_]+)" do
    list[name] = true
  end
  return list
end

describe("the programs for a GPU", function()
  it("link each file of the runtime that the linked files need", function()
    local left_out = base.read_file "scripts/cuda":match "%(([%w_|]+)%)\\%.host"
    local linked, needed, provided = {}, {}, {}
    local objects = process.program():match "^(.*)/"
      .. "/spec/cuda/CMakeFiles/mr_cuda_rt.dir/__/__/cuda/rt/"
    for name in left_out:gmatch "[%w_]+" do
      linked[name] = false
    end
    for _, file in ipairs(base.list_dir "cuda/rt") do
      local name = file:match "^(.*)%.c$"
      if name then
        local object = objects .. file .. ".o"
        if linked[name] == false then
          for symbol in pairs(names_of(object, "--defined-only")) do
            provided[symbol] = name
          end
        else
          for symbol in pairs(names_of(object, "--undefined-only")) do
            needed[symbol] = name
          end
        end
      end
    end
    assert.is_truthy(next(needed) and next(provided))
    for symbol, name in pairs(needed) do
      assert.is_nil(provided[symbol], ("cuda/rt/%s.c needs %s of cuda/rt/%s.c, which scripts/cuda "
        .. "leaves out"):format(name, symbol, provided[symbol]))
    end
  end)
end)

local found = process.run({ "sh", "-c", "command -v nvcc || ls /usr/local/cuda/bin/nvcc" }, "",
  { deadline_s = 10 }).output:match "^(/[^\n]+)"

describe("nvcc", function()
  local new, old = "arch=compute_90a,code=sm_90a", "arch=compute_80,code=sm_80"
  -- a source, and compiler options for it
  local cases = { { "cuda/rt/driver_cuda.cpp", "-Werror", "all-warnings" },
    { "spec/cuda/prim/sm80.cu", "-gencode", old }, { "spec/cuda/prim/sm90a.cu", "-gencode", new },
    { "cuda/conv/conv_sm90a.cu", "-gencode", new },
    { "cuda/attention/attention_sm90a.cu", "-gencode", new } }
  for _, case in ipairs(cases) do
    local source = case[1]
    local name = "compiles " .. source
    if not found then
      pending(name .. ": no nvcc here")
    else
      it(name, function()
        local dir <close> = folder.new()
        -- with standard error
        local r = process.run({ "sh", "-c", 'exec "$@" 2>&1', "sh", found, "-objtemp", "-x", "cu",
          "-std=c++17", "-Icore/include", "-Icore", "-I.", "-Xptxas", "-v", "-c", source, "-o",
          dir.path .. "/o.o", table.unpack(case, 2) }, "", { deadline_s = 600 })
        assert.equal(0, r.exit, r.output)
        assert.is_nil(r.output:match "%(C75%d+%)[^\n]*", r.output)
        assert.is_nil(r.output:match "[1-9]%d* bytes spill", r.output)
      end)
    end
  end
end)
