-- 5 epochs of OpenVid1M from stage 1.
return recipe.extend("../stage2", "./speedrun") {
  mask_ratios = {
    random = 0.005, intepolate = 0.002,
    quarter_random = 0.007, quarter_head = 0.002, quarter_tail = 0.002, quarter_head_tail = 0.002,
    image_random = 0.0, image_head = 0.22, image_tail = 0.005, image_head_tail = 0.005,
  },
}
