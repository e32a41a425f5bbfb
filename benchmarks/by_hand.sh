#!/usr/bin/env bash
# The four processes of a 2 + 2 job, started by hand: what `tfjob run` is measured against.
# by_hand.sh PYTHON SCRIPT PS_HOSTS WORKER_HOSTS
python=$1 script=$2
flags=(--ps_hosts "$3" --worker_hosts "$4")
ps=() workers=()
for index in 0 1; do
    "$python" "$script" --task_index $index "${flags[@]}" --job_name ps & ps+=($!)
    "$python" "$script" --task_index $index "${flags[@]}" --job_name worker & workers+=($!)
done
wait "${workers[@]}"
kill "${ps[@]}"
wait
