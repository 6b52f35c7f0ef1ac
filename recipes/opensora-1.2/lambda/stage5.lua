-- 10 epochs with the buckets of stage 2.
return recipe.extend("./bump") { bucket_config = require("../buckets").stage2 }
