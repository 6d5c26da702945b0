#!/usr/bin/env bash
# Runs a command inside a Slurm cluster of one node that exists only for it.
#
#   one_node.sh DIR COMMAND...
#
# DIR takes the cluster's files. munged, slurmctld and slurmd of the distribution run as root with a key, ports and a
# configuration of their own, without cgroups and without accounting; they are ended with the command. Exit code: the
# command's, or 77 where no cluster can be had here (it says why).
set -uo pipefail
dir=$1
shift
cannot() {
    echo "one_node.sh: $*" >&2
    [ -s "$dir/slurmd.log" ] && tail -n 5 "$dir/slurmd.log" "$dir/slurmctld.log" >&2
    exit 77
}
export PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || cannot "needs root"
for program in munged slurmctld slurmd sbatch srun scontrol; do
    command -v $program > "$dir/which" || cannot "needs $program (packages munge, slurmctld, slurmd, slurm-client)"
done

chmod 755 "$dir" # munge refuses a socket behind a folder that others could change or not enter
mkdir -p "$dir/munge" "$dir/state" "$dir/spool"
chmod 700 "$dir/munge"
(umask 077 && head -c 1024 /dev/urandom > "$dir/munge/key")
name=$(hostname -s)
port=$((20000 + $$ % 20000))
cat > "$dir/slurm.conf" << END
ClusterName=one
SlurmctldHost=$name(127.0.0.1)
SlurmUser=root
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmctldParameters=enable_configless
NodeName=$name NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$name Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$dir/slurm.conf

daemons=()
end() { # the last started first: a job's end is reported through all of them
    for ((i = 0; i < 50; ++i)); do [ -z "$(squeue -h -t all -o %t 2> /dev/null | grep -vE '^(CD|F|CA|TO|NF)$')" ] && break; sleep 0.1; done
    for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do
        kill "${daemons[i]}" 2> /dev/null
        for ((k = 0; k < 100; ++k)); do kill -0 "${daemons[i]}" 2> /dev/null || break; sleep 0.1; done
        kill -9 "${daemons[i]}" 2> /dev/null
    done
    wait
}
trap end EXIT
munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge.socket" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" > "$dir/munged.out" 2>&1 &
daemons+=($!)
for ((i = 0; i < 100; ++i)); do [ -S "$dir/munge.socket" ] && break; sleep 0.1; done
[ -S "$dir/munge.socket" ] || cannot "munged does not start: $(tail -n 1 "$dir/munged.out")"
slurmctld -D > "$dir/slurmctld.out" 2>&1 &
daemons+=($!)
slurmd -D > "$dir/slurmd.out" 2>&1 &
daemons+=($!)
for ((i = 0; i < 300; ++i)); do
    [ "$(sinfo -h -o %t 2> /dev/null)" = idle ] && break
    sleep 0.1
done
[ "$(sinfo -h -o %t 2> /dev/null)" = idle ] || cannot "the node does not come up: $(tail -n 1 "$dir/slurmd.out")"
"$@"
