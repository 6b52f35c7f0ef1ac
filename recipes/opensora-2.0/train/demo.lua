-- Stage 1 with a batch of one: does it run?
return recipe.extend("./stage1") {
  bucket_config = recipe.replace {
    ["256px"] = { [1] = { 1.0, 1 }, [33] = { 1.0, 1 }, [97] = { 1.0, 1 }, [129] = { 1.0, 1 } },
  },
}
