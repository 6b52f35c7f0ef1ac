-- 10 epochs with the buckets of stage 3, at half the rate.
return recipe.extend("./bump") { lr = 8e-5, bucket_config = require("../buckets").stage3 }
