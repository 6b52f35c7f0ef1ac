--- The command line as the strongest layers.
local folder = require "spec.support.folder"

describe("overrides", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)
  local plain = "return recipe { bucket_config = { ['144px_ar1:1'] = { [1] = { 1, 1 } } } }"

  local function get(path, ...) return dir:bake(plain, { ... }):get(path) end

  it("read values by the kind of the field", function()
    assert.equal(0.0003, get("lr", "lr=3e-4"))
    assert.equal(1000, get("epochs", "epochs=1e3"))
    assert.equal(1000, get("epochs", "--epochs=1_000"))
    assert.equal("none", get("outputs", "outputs=none"))
    assert.is_nil(get("warmup_steps", "warmup_steps=NONE"))
    assert.is_true(get("grad_checkpoint", "grad_checkpoint=True"))
    assert.is_false(get("grad_checkpoint", "grad-checkpoint=0"))
    assert.is_true(get("grad_checkpoint", "--grad_checkpoint"))
    assert.is_false(get("grad_checkpoint", "grad_checkpoint=1", "--no-grad-checkpoint"))
    assert.equal('"x"', get("name", 'name="x"'))
    assert.equal("a=b", get("name", "name=a=b"))
    assert.equal("", get("name", "name="))
    assert.same({ 0.5, 0.6 }, get("optim.betas", "optim.betas=(0.5, 0.6)"))
    assert.same({ 4, 50 }, get("grad_ckpt_settings", "grad_ckpt_setting=[4, 50]"))
    assert.equal("lots", get("user.note", "user.note=lots"))
    assert.same({ 1, { a = 2 } }, get("user.note", "user.note=[1, {'a': 2}]"))
  end)

  it("set values inside maps, records and lists", function()
    assert.same({ 0.5, 3 }, get("bucket_config.144px_ar1:1.1",
      "bucket_config.144px_ar1:1.1={0.5, 3}"))
    assert.same({ 1.0, 8 }, get("bucket_config.144px_ar1:1.1", "bucket_config.144px_ar1:1.1.2=8"))
    assert.same({ 0.9, 0.7 }, get("optim.betas", "optim.betas.2=0.7"))
    local s = dir:bake(plain, { 'bucket_config={"a": {1: (1.0, 2)}}', "optim={eps = 2, lr: 3}" })
    assert.same({ 1.0, 2 }, s:get("bucket_config.a.1"))
    assert.same({ 1.0, 1 }, s:get("bucket_config.144px_ar1:1.1"))
    assert.same({ 3.0, 2.0 }, { s.optim.lr, s.optim.eps })
  end)

  it("accept remove and replace", function()
    local base = "return recipe { lr = 1, name = 'x', grad_checkpoint = false, "
      .. "optim = { eps = 3 }, mask_ratios = { random = 0.5, identity = 0.5 } }"
    local function baked(...) return dir:bake(base, { ... }) end
    assert.same({ 1e-4, "optim.lr=recipe.remove" }, { baked("optim.lr=recipe.remove").optim.lr,
      baked("optim.lr=recipe.remove"):origin("lr") })
    assert.is_nil(baked("name=recipe.remove").name)
    assert.equal(baked("grad_checkpoint=recipe.remove").grad_checkpoint,
      dir:bake("return recipe {}").grad_checkpoint)
    assert.same({ identity = 0.5 }, baked("mask_ratios.random=recipe.remove"):get("mask_ratios"))
    assert.same({ identity = 0.5, image_head = 1.0 },
      baked("mask_ratios={random=recipe.remove, image_head=1}"):get("mask_ratios"))
    assert.same({ image_head = 1.0 },
      baked("mask_ratios=recipe.replace {image_head: 1}"):get("mask_ratios"))
    assert.is_nil(baked("mask_ratios=recipe.remove").mask_ratios)
    local s = baked("optim=recipe.replace{lr=2}")
    assert.same({ 2.0, 1e-8 }, { s.optim.lr, s.optim.eps })
    assert.same({ ["9"] = { [4] = { 1.0, 2 } } },
      dir:bake(plain, { 'bucket_config=recipe.replace{"9": {"4": (1, 2)}}' }):get("bucket_config"))
    assert.equal("recipe.previous", baked("ckpt_path=recipe.previous").ckpt_path)
    -- a later argument continues from there
    assert.same({ 0.25 }, { baked("mask_ratios=recipe.remove", "mask_ratios.random=0.25")
      .mask_ratios.random })
    local code, fault = dir:fault(base, { "optim.betas.1=recipe.remove" })
    assert.equal(2, code)
    assert.matches("optim%.betas: expected a list of 2 number from 0 to 1, got { recipe%.remove, ",
      fault)
    code, fault = dir:fault(base, { "lr=recipe.previous" })
    assert.equal(2, code)
    assert.matches("optim%.lr: expected number of at least 0, got recipe%.previous", fault)
  end)

  it("apply in order: the last one wins, and both are in the chain", function()
    local s = dir:bake(plain, { "lr=1", "optim.lr=2", "lr=3" })
    assert.equal(3.0, s.optim.lr)
    local chain = s:chain("lr")
    assert.same({ "default", "lr=1", "optim.lr=2", "lr=3" },
      { chain[1].at, chain[2].at, chain[3].at, chain[4].at })
  end)

  it("report what is wrong and exit with 2", function()
    for argument, want in pairs {
      ["lrr=1"] = "lrr=1: lrr is not a field, did you mean 'lr'?",
      ["model.dept=1"] = "model.dept=1: model.dept is not a field, did you mean 'model.depth'?",
      ["lr=fast"] = "lr=fast: optim.lr: expected number of at least 0, got 'fast'",
      ["lr="] = "lr=: optim.lr: expected number of at least 0, the value is missing",
      ["--lr"] = "--lr: optim.lr: expected number of at least 0, got nothing; try: lr=VALUE",
      ["lr=2^3"] = "lr=2^3: optim.lr: expected number of at least 0, got '2^3'",
      ["lr=none"] = "optim.lr: expected number of at least 0, got 'none'",
      ["epochs=1.5"] = "epochs: expected integer of at least 0, got number 1.5",
      ["epochs=-1"] = "epochs: expected integer of at least 0, got number -1",
      ["grad_checkpoint=yes"] = "grad_checkpoint: expected true or false, got 'yes'; try: true",
      ["grad_checkpoint=none"] = "grad_checkpoint: expected true or false, got 'none'",
      ["dtype=fp8"] = 'dtype: expected one of "bf16", "fp32", got text "fp8"',
      ["optim.betas=[1"] = "optim.betas: expected a list of 2 number from 0 to 1, missing ]",
      ["optim.betas=[0.5]"] = "optim.betas: expected a list of 2 number from 0 to 1, got { 0.5 }",
      ["optim.betas.3=1"] = "optim.betas.3: the list has 2 elements, counted from 1",
      ["optim.betas.x=1"] = "optim.betas is a list; expected an element counted from 1, got 'x'",
      ["optim.betas.1=often"] = "optim.betas: expected a list of 2 number from 0 to 1, got { "
        .. "\"often\"",
      ["nproc_per_node=1025"] = "nproc_per_node: expected integer from 1 to 1024, got number 1025",
      ["optim.lr.x=1"] = "optim.lr has no fields of its own",
      ["bucket_config.a.x=1"] = "bucket_config.a: expected integer keys of at least 1, got 'x'",
      ["bucket_config.a.0={1,1}"] = "bucket_config.a: expected integer keys of at least 1, got '0'",
      ["bucket_config.a.1={2, 1}"] = "bucket_config.a.1: expected {keep, batch}",
      ["mask_ratios.rando=1"] = "mask_ratios.rando is not known, did you mean 'random'?",
      ["grad_ckpt_settings={19}"] = "grad_ckpt_settings: expected a list of 2 integer",
      ["min_lr=1"] = 'min_lr=1: min_lr is read only when lr_schedule is "1cycle", and it is '
        .. '"constant"',
      ["vae.micro_frame_size=17"] = "vae.micro_frame_size",
      ["a..b=1"] = "'a..b' is not a field name",
      ["word"] = "'word': expected key=value",
    } do
      local code, fault = dir:fault(plain, { argument })
      assert.equal(2, code, argument .. ": " .. fault)
      assert.is_truthy(fault:find(want, 1, true), argument .. ": " .. fault)
    end
  end)

  it("leave the exit code of recipe errors at 3", function()
    assert.equal(3, (dir:fault("return recipe { lr = 'x' }", { "epochs=1" })))
  end)
end)
