--- Ways in which a rank hangs, for watched launches (spec/lua/life/hang_spec.lua) and the program
-- that their ranks run (hang_program.lua): a list of {kind, phase, rank}, in an order of its own
-- for each launch.
return function(launch, ranks)
  local list = {}
  local function add(kind, phase)
    list[#list + 1] = { kind = kind, phase = phase, rank = (launch + #list) % ranks }
  end
  for _, phase in ipairs(require("moonreel.life.watch").phases) do
    add("stop", phase)   -- SIGSTOP
  end
  add("sleep", "load")   -- a decoder that does not return
  add("lock", "persist") -- a system call that blocks
  add("slow", "forward") -- a rank that takes longer than the others
  -- another order for each launch
  for i = #list, 2, -1 do
    local j = (launch * 7 + i * 5) % i + 1
    list[i], list[j] = list[j], list[i]
  end
  add("skip", "reduce")  -- a collective left out; it ends the launch
  return list
end
