-- 10 epochs with the buckets of stage 1.
return recipe.extend("./bump") { bucket_config = require("../buckets").stage1 }
