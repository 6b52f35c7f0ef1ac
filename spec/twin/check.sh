#!/bin/sh
# check.sh MOONREEL [WORK]: all twins, in about three minutes of one core; exit 1 where one is lost.
# To be run where build/demo is (make demo-data); PYTHON has torch and safetensors.
set -e
moonreel=$1 work=${2:-/tmp/moonreel-twin} here=$(cd "$(dirname "$0")" && pwd) python=${PYTHON:-python3}
mkdir -p "$work"
TWIN_STATES=0,1,49,50,100 TWIN_GRADS=1,50
export TWIN_STATES TWIN_GRADS
last_line() { # of a command, whose exit code counts
    "$@" > "$work/said" || { cat "$work/said"; exit 1; }
    tail -1 "$work/said"
}
run() { # NAME WITHIN RECIPE [key=value ...]
    name=$1 within=$2; shift 2
    "$moonreel" "$here/dump.lua" "$work/$name" "$@" "outputs=$work/runs" > "$work/$name.log" 2>&1
    last_line "$python" "$here/twin.py" "$work/$name" --quiet --within "$within"
    last_line "$python" "$here/twin.py" "$work/$name" --quiet --within 1e-6 --from 49 --steps 1
}
small="text_encoder.rows=512 steps=100 threads=1 dtype=fp32"
run plain 5e-6 "$here/twin_a.lua" $small
run accumulate 5e-6 "$here/twin_a.lua" $small accumulate=2 grad_checkpoint=true
run mask 5e-6 "$here/twin_mask.lua" $small
newest() { ls -t "$work/runs" | head -1; }
run stage 5e-6 "$here/twin_mask.lua" $small "ckpt_path=$work/runs/$(newest)" accumulate=1
for guidance in 1 1.5 7; do
    "$moonreel" "$here/dump_sample.lua" "$work/sample" "$work/runs/001-twin_a" "guidance=$guidance"
    last_line "$python" "$here/twin_sample.py" "$work/sample" --within 2e-6
done
TWIN_STAGE=pictures run pictures 1e-4 recipes/tiny/vae steps=100 threads=1
TWIN_STAGE=frames run frames 2e-4 recipes/tiny/vae steps=100 threads=1 "ckpt_path=$work/runs/$(newest)"
