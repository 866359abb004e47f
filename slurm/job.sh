# shellcheck shell=bash
# Code shared by the job scripts; needs bash 4.3.  Read it after the site file;
# starmill-submit copies both into the script that it fills in.
#
# A fit stops in good order before the time limit (SIGUSR1 to the batch shell, see
# #SBATCH --signal), is put back into the queue, and the same command continues it.
# A stop file, OUT.h5.stop, stops it for good.  Nothing here ever gives --overwrite.

# --- defaults of the site's settings ----------------------------------------
[[ ${SITE_SBATCH+x} ]] || SITE_SBATCH=()
[[ ${SITE_SBATCH_GPU+x} ]] || SITE_SBATCH_GPU=()
[[ ${SITE_SBATCH_ONE_GPU+x} ]] || SITE_SBATCH_ONE_GPU=()
[[ ${SITE_SBATCH_CPU+x} ]] || SITE_SBATCH_CPU=()
[[ ${SITE_SBATCH_SHORT+x} ]] || SITE_SBATCH_SHORT=()
: "${SITE_GPUS_PER_NODE:=4}"
: "${SITE_GPU_TYPE:=}"
: "${SITE_CPUS_PER_NODE:=64}"
: "${SITE_CPU_NODE_CPUS:=64}"
: "${SITE_CPU_NODE_RANKS:=4}"
: "${SITE_PROGRAM:=starmill}"
[[ ${SITE_LAUNCHER+x} ]] || SITE_LAUNCHER=(srun --kill-on-bad-exit=1)
: "${SITE_GPU_BACKEND:=cuda}"
[[ ${SITE_NSYS+x} ]] || SITE_NSYS=(nsys profile '--trace=cuda,nvtx,mpi,osrt' --sample=none)
: "${SITE_WARN_S:=300}"
: "${SITE_MAX_REQUEUES:=100}"
: "${SITE_RETRIES:=1}"
: "${SITE_POLL_S:=10}"
: "${SITE_MAX_MINUTES:=1440}"
: "${SITE_MAX_NODES:=64}"
: "${SITE_TARGET_MINUTES:=60}"
: "${SITE_RATE_GPU:=1000}"
: "${SITE_RATE_CPU:=25}"
: "${SITE_START_S:=120}"

# --- state ------------------------------------------------------------------
job_command=(fit) # of starmill: fit, sample or library train
job_arguments=()  # of that command
job_output=       # its --output
job_stop_files=() # any of them stops the job
job_can_requeue=1
job_is_part=0     # 1: a task of a job array
job_unfinished='10|11|12|75' # statuses of starmill status: running, no output, failed, stopped
job_mark=         # of a part: the file that says that this start completed its output
job_asked=        # why the ranks were asked to stop: limit, term or file
job_late=0        # 1: the ranks were asked to stop and have not stopped in time
job_interrupted=0 # 1: a trap ran while the script waited
job_pid=          # process of the launcher
job_status=0      # exit status of the launcher
job_helpers=()    # background shells that only send signals

job_say() {
  printf '%s job %s start %s: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "${SLURM_JOB_ID:--}" \
    "${SLURM_RESTART_COUNT:-0}" "$*" >&2
}

job_refuse() {
  job_say "$*"
  exit 2
}

# --- what is to be run ------------------------------------------------------
job_read_arguments() { # gpu|cpu, then starmill's [COMMAND] ARGUMENTS...; calls job_set_up
  local backend=cpu has_backend=0 emulator=network previous='' argument left=()
  [[ $1 == cpu ]] || backend=$SITE_GPU_BACKEND
  shift
  case "${1-} ${2-}" in
    'fit '* | 'sample '*) job_command=("$1"); shift ;;
    'library train') job_command=(library train); shift 2 ;;
  esac
  for argument; do # starmill takes shortened options
    [[ $argument != --*=* ]] || previous=${argument%%=*}
    case $previous in
      --output) job_output=${argument#--*=} ;;
      --sto | --stop | --stop- | --stop-f*) job_stop_files+=("${argument#--*=}") ;;
      --em*) emulator=${argument#--*=} ;;
      --co*) # does the configuration file choose cpu or cuda?
        ! grep -qsE '^[^#]*\bbackend\W*:\W*c(pu|uda)' -- "${argument#--*=}" || has_backend=1 ;;
    esac
    case $argument in
      --bac*) has_backend=1 ;;
      --sk* | --pl* | --print*) job_unfinished='10|75' ;; # no output, or an old status, is allowed
      --ov*)
        job_refuse "$argument has no place in a job that is requeued: every start would fit" \
          "all rows again; remove the old output by hand, of an array OUT.parts too" ;;
    esac
    previous=${argument##*=*}
    [[ $argument == --ret* ]] || left+=("$argument")
  done
  [[ -n $job_output ]] || job_refuse "no output: give --output OUT.h5, the option in full"
  job_stop_files+=("$job_output.stop")
  if ((job_is_part)); then # a part also obeys the common stop file of all parts
    export STARMILL_PART=1 # the stars of a table of starts or priors may all be in other parts
    job_mark=${job_output%.h5}.ok
    rm -f -- "$job_mark"
    case $job_output in
      */*) job_stop_files+=("${job_output%/*}/stop") ;;
      *) job_stop_files+=(stop) ;;
    esac
  fi
  job_set_up
  argument=$(readlink -f -- "$job_output" || :).new
  [[ ! -e $job_output || ! $argument -nt $job_output ]] ||
    job_refuse "$argument, of a run with --overwrite, is newer than $job_output: end that run" \
      "by hand, or remove $argument to keep $job_output"
  # a start with --retry-failed marks failed rows as not done; a restart must not mark them again
  ((${SLURM_RESTART_COUNT:-0} > 0)) && job_is_lost || left=("$@")
  job_arguments=("${left[@]}")
  # library train takes --backend for networks only
  [[ $has_backend == 1 || $emulator != network ]] ||
    job_arguments=(--backend "$backend" "${job_arguments[@]}")
}

job_set_up() { # load the site's modules; set +eu: its functions may fail or use unset variables
  local status=0
  if declare -F site_setup >/dev/null; then
    set +eu
    site_setup
    status=$?
    set -eu
    ((status == 0)) || job_refuse "site_setup of the site file ended with status $status"
  fi
  command -v -- "$SITE_PROGRAM" >/dev/null ||
    job_refuse "no program $SITE_PROGRAM: set SITE_PROGRAM in the site file"
  # since Slurm 22.05 srun does not inherit --cpus-per-task from sbatch
  [[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
}

job_stop_file() { # print the existing stop file; status 1: none
  local file
  for file in "${job_stop_files[@]}"; do
    [[ ! -e $file ]] || { printf '%s' "$file"; return 0; }
  done
  return 1
}

# --- running it -------------------------------------------------------------
job_ask() { # WHY: ask the ranks to stop in good order
  job_interrupted=1
  # ask once: a second signal ends the ranks at once.  After a stop file the job is not requeued.
  if [[ -n $job_asked ]]; then
    [[ $1 != file ]] || job_asked='file'
    return 0
  fi
  job_asked=$1
  case $1 in
    limit) job_say "SIGUSR1, the warning before the time limit: the ranks are asked to stop" ;;
    term) job_say "SIGTERM: the ranks are asked to stop" ;;
    file) job_say "stop file $(job_stop_file || :): the ranks are asked to stop" ;;
  esac
  [[ -z $job_pid ]] || kill -USR1 "$job_pid" 2>/dev/null || :
  # requeue before Slurm kills the job at the limit: a killed job is not requeued
  (
    sleep "$((SITE_WARN_S * 3 / 4))"
    kill -ALRM "$$"
  ) &
  job_helpers+=("$!")
}

job_watch() { # wait for a stop file, then send this script SIGUSR2
  while sleep "$SITE_POLL_S"; do
    if job_stop_file >/dev/null; then
      kill -USR2 "$$"
      return
    fi
  done
}

job_run() { # COMMAND...: run it to its end, or until job_late; sets job_status
  "$@" &
  job_pid=$!
  # the request may have come before job_pid was known
  [[ -z $job_asked ]] || kill -USR1 "$job_pid" 2>/dev/null || :
  job_watch &
  job_helpers+=("$!")
  while :; do
    job_interrupted=0
    job_status=0
    wait "$job_pid" || job_status=$?
    ((job_interrupted && !job_late)) || break
  done
  kill "${job_helpers[@]}" 2>/dev/null || :
  job_helpers=()
}

job_is_lost() { # is the output unfinished?  srun 22.05 may end with 0 when a node fails
  local status=0
  [[ ${job_command[0]} != library ]] || { [[ ! -e $job_output ]]; return; }
  "$SITE_PROGRAM" status "$job_output" >/dev/null 2>&1 || status=$?
  [[ $status =~ ^($job_unfinished)$ ]]
}

job_requeue() { # put the job back into the queue and end; does not return
  local state='' i id=$SLURM_JOB_ID
  # SLURM_JOB_ID of an array's last task is the array's own number
  [[ -z ${SLURM_ARRAY_TASK_ID:-} ]] || id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
  if ((!job_can_requeue)); then
    job_say "stopped in good order; submit the same again to continue"
    exit 75
  fi
  if ((${SLURM_RESTART_COUNT:-0} >= SITE_MAX_REQUEUES)); then
    job_say "not requeued: that happened $SLURM_RESTART_COUNT times already" \
      "(SITE_MAX_REQUEUES); submit the same again to continue"
    exit 75
  fi
  for ((i = 0; i < 6; i++)); do
    ((i == 0)) || sleep 10 # the controller may be busy
    state=$(squeue --noheader --jobs="$id" --format=%T) || continue
    # a cancelled job has the state COMPLETING: requeueing it would start it again
    if [[ $state != RUNNING ]]; then
      job_say "not requeued: the job's state is ${state:-unknown}"
      exit 75
    fi
    job_say "requeued; the same command continues"
    trap '' USR1 USR2 ALRM
    trap - TERM # SIGTERM ends this script at once
    ! scontrol requeue "$id" || sleep 300 # wait until Slurm ends this script
  done
  job_say "scontrol requeue failed; submit the same again to continue"
  exit 75
}

job_main() { # COMMAND...: run it; retry after a crash, requeue, or exit with its status
  local file tries=0
  if file=$(job_stop_file); then
    job_say "not started: there is a stop file, $file; remove it and submit the same again"
    exit 75
  fi
  trap 'job_ask limit' USR1
  trap 'job_ask term' TERM
  trap 'job_ask file' USR2
  trap 'job_late=1' ALRM
  while :; do
    job_say "$(printf '%q ' "$@")"
    job_run "$@"
    if ((job_late)) && [[ $job_asked == limit ]]; then
      job_say "the ranks have not stopped in time; what they have written is kept"
      job_requeue
    fi
    if ((job_status == 0)) && job_is_lost; then
      job_say "the launcher ended with 0, but $job_output is not finished: was a node lost?"
      job_status=75
    fi
    case $job_status in
      0) job_say "done" ;;
      3) job_say "done, but some input was unreadable, or no row was fitted" ;;
      2 | 4) job_say "ended with status $job_status; the lines above say why" ;;
      *)
        # the program may have seen a stop file before job_watch did
        [[ -n $job_asked ]] || ! job_stop_file >/dev/null || job_asked='file'
        # SIGUSR1 before the program handles it kills the program; nothing is lost
        if [[ $job_asked == limit || (-z $job_asked && $job_status == 75) ]]; then
          job_requeue
        elif [[ -n $job_asked ]]; then
          job_say "stopped; submit the same again to continue"
          exit 75
        elif ((tries < SITE_RETRIES)); then
          tries=$((tries + 1))
          job_say "ended with status $job_status; new try $tries of $SITE_RETRIES"
          continue
        fi
        job_say "ended with status $job_status"
        ;;
    esac
    [[ -z $job_mark || ($job_status != 0 && $job_status != 3) ]] || : >"$job_mark"
    exit "$job_status"
  done
}

# --- the jobs ---------------------------------------------------------------
job_fit() { # gpu|cpu ARGUMENTS...: starmill fit, sample or library train with a rank per task
  job_read_arguments "$@"
  job_main "${SITE_LAUNCHER[@]}" "$SITE_PROGRAM" "${job_command[@]}" "${job_arguments[@]}"
}

job_part() { # gpu|cpu ARGUMENTS...: job_fit with {part} replaced by the task's number, four digits
  local kind=$1 mark='{part}' part argument arguments=()
  shift
  [[ -n ${SLURM_ARRAY_TASK_ID:-} ]] || job_refuse "this is a job array: sbatch --array=0-N"
  printf -v part '%04d' "$SLURM_ARRAY_TASK_ID"
  for argument; do
    arguments+=("${argument//"$mark"/$part}")
  done
  job_is_part=1
  job_fit "$kind" "${arguments[@]}"
}

job_profile() { # gpu|cpu ARGUMENTS...: job_fit under nsys, without retries and requeueing
  job_read_arguments "$@"
  job_can_requeue=0
  SITE_RETRIES=0
  # %q{...} is a pattern of nsys; escape % in the path
  job_main "${SITE_LAUNCHER[@]}" "${SITE_NSYS[@]}" \
    --output="${job_output//%/%%}.rank%q{SLURM_PROCID}" \
    "$SITE_PROGRAM" "${job_command[@]}" "${job_arguments[@]}"
}

job_merge() { # ARGUMENTS...: starmill merge, once, of parts that the array's last start completed
  local argument missing=()
  job_set_up
  for argument; do # a part that was refused or never started has the result of an earlier array
    [[ $argument != *part-[0-9][0-9][0-9][0-9].h5 || -e ${argument%.h5}.ok ]] ||
      missing+=("$argument")
  done
  ((${#missing[@]} == 0)) ||
    job_refuse "not merged: the array did not complete ${missing[*]}: see the parts' logs;" \
      "submit the same again to continue, or remove the folder of the parts to begin again"
  job_say "$(printf '%q ' "$SITE_PROGRAM" merge "$@")"
  exec "$SITE_PROGRAM" merge "$@"
}
