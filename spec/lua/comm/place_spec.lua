--- Which rank this process is: each launcher reports it in variables of its own.
local fails = dofile "spec/support/fails.lua"
local place = require "moonreel.comm.place"

local function find(variables)
  return place.find(function(name) return variables[name] end)
end

describe("the place of a process", function()
  it("is rank 0 of 1 when no launcher has set variables", function()
    assert.same({ rank = 0, size = 1, local_rank = 0 }, find {})
    -- one rank is not a launch of several; Slurm also sets variables in the shell of a job
    assert.same({ rank = 0, size = 1, local_rank = 0 }, find { WORLD_SIZE = "1", RANK = "" })
    assert.same({ rank = 0, size = 1, local_rank = 0 }, find { SLURM_NTASKS = "4" })
    assert.same({ rank = 0, size = 1, local_rank = 0 }, find { SLURM_PROCID = "0" })
    -- sbatch and salloc: task 0 of a job of four that srun did not start
    assert.same({ rank = 0, size = 1, local_rank = 0 }, find { SLURM_PROCID = "0",
      SLURM_NTASKS = "4", SLURM_LOCALID = "0", SLURM_JOB_NODELIST = "n[1-2]" })
    assert.equal(1, find { SLURM_PROCID = "0", SLURM_NTASKS = "4", SLURM_STEP_NUM_TASKS = "1",
      SLURM_LOCALID = "0", SLURM_JOB_NODELIST = "n[1-2]" }.size)
  end)

  it("is read from the variables of moonreel, torchrun, Open MPI, PMI and Slurm", function()
    assert.same({ rank = 3, size = 4, local_rank = 1, local_size = 4, by = "moonreel -n",
      segment = 5 },
      find { MOONREEL_RANK = "3", MOONREEL_WORLD_SIZE = "4", MOONREEL_LOCAL_RANK = "1",
        MOONREEL_SEGMENT = "5" })
    assert.same({ rank = 2, size = 8, local_rank = 2, by = "torchrun",
      tcp = { host = "a", port = 29500, ports = 16, run = "torchrun ", fence = 0 } },
      find { RANK = "2", WORLD_SIZE = "8", LOCAL_RANK = "2", MASTER_ADDR = "a" })
    assert.same({ rank = 1, size = 2, local_rank = 0, by = "Open MPI" },
      find { OMPI_COMM_WORLD_RANK = "1", OMPI_COMM_WORLD_SIZE = "2",
        OMPI_COMM_WORLD_LOCAL_RANK = "0" })
    assert.equal(2, find { RANK = "2", WORLD_SIZE = "8", LOCAL_WORLD_SIZE = "2",
      MASTER_ADDR = "a" }.local_size)
    -- hosts with different numbers of ranks form no torus
    assert.is_nil(find { OMPI_COMM_WORLD_RANK = "0", OMPI_COMM_WORLD_SIZE = "5",
      OMPI_COMM_WORLD_LOCAL_SIZE = "3" }.local_size)
    assert.same({ rank = 1, size = 3, local_rank = 1, by = "PMI" },
      find { PMI_RANK = "1", PMI_SIZE = "3", MPI_LOCALRANKID = "1" })
    assert.same({ rank = 5, size = 6, local_rank = 1, by = "Slurm" },
      find { SLURM_PROCID = "5", SLURM_STEP_NUM_TASKS = "6", SLURM_LOCALID = "1", PMIX_RANK = "5" })
  end)

  it("belongs to several ranks under a launcher, but not in the shell of a Slurm job", function()
    local function of_several(variables)
      return { place.of_several(function(name) return variables[name] end) }
    end
    assert.same({ "Open MPI", 1, 2 },
      of_several { OMPI_COMM_WORLD_RANK = "1", OMPI_COMM_WORLD_SIZE = "2" })
    assert.same({ "moonreel -n", 0, 3 },
      of_several { MOONREEL_RANK = "0", MOONREEL_WORLD_SIZE = "3", RANK = "no number" })
    assert.same({ "torchrun", 2, 8 }, of_several { RANK = "2", WORLD_SIZE = "8",
      SLURM_PROCID = "0", SLURM_NTASKS = "1" })
    assert.same({}, of_several {})
    assert.same({}, of_several { OMPI_COMM_WORLD_RANK = "0", OMPI_COMM_WORLD_SIZE = "1" })
    assert.same({}, of_several { SLURM_PROCID = "0", SLURM_NTASKS = "4" })
    assert.same({ "Slurm", 0, 4 }, of_several { SLURM_PROCID = "0", SLURM_STEP_NUM_TASKS = "4" })
  end)

  it("includes the rendezvous of ranks on several hosts", function()
    -- torchrun keeps its own store at the port, and counts restarts
    local tcp = find { RANK = "1", WORLD_SIZE = "2", MASTER_ADDR = "a", MASTER_PORT = "400",
      TORCHELASTIC_USE_AGENT_STORE = "True", TORCHELASTIC_RUN_ID = "r", MOONREEL_SECRET_TEXT = "s",
      TORCHELASTIC_RESTART_COUNT = "2", MOONREEL_LISTEN = "eth1", MOONREEL_ENCRYPT = "1" }.tcp
    assert.same({ host = "a", port = 401, ports = 16, run = "torchrun r", fence = 2,
      secret = "s", listen = "eth1", encrypt = true }, tcp)
    -- srun without MPI: the first host of the list
    local slurm = find { SLURM_PROCID = "1", SLURM_STEP_NUM_TASKS = "6", SLURM_JOB_ID = "20007",
      SLURM_JOB_NODELIST = "n[03-05]", SLURM_TASKS_PER_NODE = "2(x3)", SLURM_STEP_ID = "4" }
    assert.same({ host = "n03", port = 20007, ports = 16, run = "slurm 20007.4", fence = 0 },
      slurm.tcp)
    assert.equal(2, slurm.local_size)
    assert.is_nil(find { SLURM_PROCID = "1", SLURM_STEP_NUM_TASKS = "6",
      SLURM_TASKS_PER_NODE = "4,2", PMIX_RANK = "1" }.local_size)
    -- moonreel: ranks of one host share memory as well
    local own = find { MOONREEL_RANK = "3", MOONREEL_WORLD_SIZE = "4", MOONREEL_LOCAL_RANK = "1",
      MOONREEL_LOCAL_SIZE = "2", MOONREEL_EVEN_SIZE = "2",
      MOONREEL_SEGMENT = "5", MOONREEL_MASTER = "[::1]:77",
      MOONREEL_RUN_ID = "r", MOONREEL_FENCE = "9", MOONREEL_SECRET = "8",
      MOONREEL_LISTEN = "::1", MOONREEL_ENCRYPT = "0" }
    assert.same({ host = "::1", port = 77, ports = 1, run = "r", fence = 9, listen = "::1",
      encrypt = false,
      secret_fd = 8, first = 2, n_local = 2 }, own.tcp)
    assert.same({ 2, 5 }, { own.local_size, own.segment })
  end)

  it("is set by the innermost launcher", function()
    assert.equal("moonreel -n", find { MOONREEL_RANK = "0", MOONREEL_WORLD_SIZE = "2",
      SLURM_PROCID = "1", SLURM_STEP_NUM_TASKS = "2" }.by)
    assert.equal("Open MPI", find { OMPI_COMM_WORLD_RANK = "0", OMPI_COMM_WORLD_SIZE = "2",
      SLURM_PROCID = "1", SLURM_STEP_NUM_TASKS = "2" }.by)
  end)

  it("is refused when two launchers disagree and neither was started by the other",
    function()
      local mpi = { OMPI_COMM_WORLD_RANK = "1", OMPI_COMM_WORLD_SIZE = "2" }
      local function with(more)
        for name, value in pairs(mpi) do
          more[name] = more[name] or value
        end
        return more
      end
      fails("MR_E_NODE", "RANK=1 of WORLD_SIZE=4 %(torchrun%), but OMPI_COMM_WORLD_RANK=1 of "
        .. "OMPI_COMM_WORLD_SIZE=2 %(Open MPI%): two launchers", find, with { RANK = "1",
          WORLD_SIZE = "4", MASTER_ADDR = "a" })
      fails("MR_E_NODE", "but PMI_RANK=0 of PMI_SIZE=2 %(PMI%)", find, with { PMI_RANK = "0",
        PMI_SIZE = "2" })
      assert.equal("torchrun", find(with { RANK = "1", WORLD_SIZE = "2", MASTER_ADDR = "a" }).by)
      assert.equal("Open MPI", find(with { PMI_RANK = "0", PMI_SIZE = "2",
        SLURM_PROCID = "0" }).by)
      -- srun inside a rank of mpirun: each task inherits the variables of that rank
      assert.equal("Open MPI", find(with { SLURM_PROCID = "3", SLURM_STEP_NUM_TASKS = "4",
        SLURM_LOCALID = "0" }).by)
      fails("MR_E_NODE", "but SLURM_PROCID=1 of SLURM_STEP_NUM_TASKS=4 %(Slurm%): two launchers",
        find, with { SLURM_PROCID = "1", SLURM_STEP_NUM_TASKS = "4", SLURM_LOCALID = "1" })
      assert.equal("moonreel -n", find(with { MOONREEL_RANK = "0", MOONREEL_WORLD_SIZE = "3" }).by)
    end)

  it("is refused when variables are missing or contradict each other", function()
    fails("MR_E_NODE", "RANK=3 is set, but WORLD_SIZE is not; expected both, as set by torchrun, "
      .. "or neither; try: unset RANK", find, { RANK = "3", WORLD_SIZE = "" })
    fails("MR_E_NODE", "OMPI_COMM_WORLD_SIZE=2 is set, but OMPI_COMM_WORLD_RANK is not", find,
      { OMPI_COMM_WORLD_SIZE = "2" })
    fails("MR_E_NODE", "RANK=%-1: expected a whole number from 0 to 2147483647", find,
      { RANK = "-1", WORLD_SIZE = "2" })
    fails("MR_E_NODE", "RANK=2: expected less than WORLD_SIZE=2", find,
      { RANK = "2", WORLD_SIZE = "2" })
    fails("MR_E_NODE", "WORLD_SIZE=1099511627776: expected a whole number from 1 to 1048576", find,
      { RANK = "0", WORLD_SIZE = "1099511627776" })
    fails("MR_E_NODE", "LOCAL_RANK=2: expected at most 1, of LOCAL_WORLD_SIZE=2", find,
      { RANK = "2", WORLD_SIZE = "4", LOCAL_RANK = "2", LOCAL_WORLD_SIZE = "2" })
    fails("MR_E_NODE", "LOCAL_WORLD_SIZE=8: expected at most 4, of WORLD_SIZE=4", find,
      { RANK = "2", WORLD_SIZE = "4", LOCAL_WORLD_SIZE = "8" })
    fails("MR_E_NODE", "RANK=x: expected a whole number from 0 to 2147483647",
      find, { RANK = "x", WORLD_SIZE = "2" })
    fails("MR_E_NODE", "WORLD_SIZE=0: expected a whole number from 1 to 1048576",
      find, { RANK = "0", WORLD_SIZE = "0" })
    fails("MR_E_NODE", "MASTER_ADDR is not; expected the host of rank 0", find,
      { RANK = "0", WORLD_SIZE = "2" })
    fails("MR_E_NODE", "SLURM_JOB_NODELIST is not", find,
      { SLURM_PROCID = "0", SLURM_STEP_NUM_TASKS = "2" })
    fails("MR_E_NODE", "MOONREEL_MASTER=x: expected HOST:PORT", find, { MOONREEL_RANK = "0",
      MOONREEL_WORLD_SIZE = "2", MOONREEL_MASTER = "x" })
    fails("MR_E_NODE", "PMI_RANK=2: expected less than PMI_SIZE=2",
      find, { PMI_RANK = "2", PMI_SIZE = "2" })
  end)

  it("puts no rank in front of the messages of a single process", function()
    assert.equal("", place.label())
  end)
end)
