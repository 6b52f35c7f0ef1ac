--- Which rank this process is: whoever started it says so, each in its own words.
local fails = dofile "spec/support/fails.lua"
local place = require "moonreel.comm.place"

local function find(variables)
  return place.find(function(name) return variables[name] end)
end

describe("the place of a process", function()
  it("is that of the only rank where nobody says otherwise", function()
    assert.same({ rank = 0, size = 1, local_rank = 0 }, find {})
    -- half of the variables is nobody
    assert.same({ rank = 0, size = 1, local_rank = 0 }, find { RANK = "3" })
  end)

  it("is told by moonreel, torchrun, Open MPI, PMI and Slurm", function()
    assert.same({ rank = 3, size = 4, local_rank = 1, local_size = 4, by = "moonreel -n",
      meeting = 5 },
      find { MOONREEL_RANK = "3", MOONREEL_WORLD_SIZE = "4", MOONREEL_LOCAL_RANK = "1",
        MOONREEL_MEETING = "5" })
    assert.same({ rank = 2, size = 8, local_rank = 2, by = "torchrun" },
      find { RANK = "2", WORLD_SIZE = "8", LOCAL_RANK = "2" })
    assert.same({ rank = 1, size = 2, local_rank = 0, by = "Open MPI" },
      find { OMPI_COMM_WORLD_RANK = "1", OMPI_COMM_WORLD_SIZE = "2",
        OMPI_COMM_WORLD_LOCAL_RANK = "0" })
    assert.equal(2, find { RANK = "2", WORLD_SIZE = "8", LOCAL_WORLD_SIZE = "2" }.local_size)
    -- hosts of different sizes are no torus
    assert.is_nil(find { OMPI_COMM_WORLD_RANK = "0", OMPI_COMM_WORLD_SIZE = "5",
      OMPI_COMM_WORLD_LOCAL_SIZE = "3" }.local_size)
    assert.same({ rank = 1, size = 3, local_rank = 1, by = "PMI" },
      find { PMI_RANK = "1", PMI_SIZE = "3", MPI_LOCALRANKID = "1" })
    assert.same({ rank = 5, size = 6, local_rank = 1, by = "Slurm" },
      find { SLURM_PROCID = "5", SLURM_NTASKS = "6", SLURM_LOCALID = "1" })
  end)

  it("is that of the launcher that is nearest", function()
    assert.equal("moonreel -n", find { MOONREEL_RANK = "0", MOONREEL_WORLD_SIZE = "2",
      SLURM_PROCID = "1", SLURM_NTASKS = "2" }.by)
    assert.equal("Open MPI", find { OMPI_COMM_WORLD_RANK = "0", OMPI_COMM_WORLD_SIZE = "2",
      SLURM_PROCID = "1", SLURM_NTASKS = "2" }.by)
  end)

  it("is refused where it makes no sense", function()
    fails("MR_E_NODE", "RANK=x: expected a whole number from 0 on",
      find, { RANK = "x", WORLD_SIZE = "2" })
    fails("MR_E_NODE", "WORLD_SIZE=0: expected a whole number from 1 on",
      find, { RANK = "0", WORLD_SIZE = "0" })
    fails("MR_E_NODE", "PMI_RANK=2: expected less than PMI_SIZE=2",
      find, { PMI_RANK = "2", PMI_SIZE = "2" })
  end)

  it("names no rank before messages of a process that is alone", function()
    assert.equal("", place.label())
  end)
end)
