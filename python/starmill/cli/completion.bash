# bash completion for starmill, which asks --help: starmill help completion
_starmill() {
  local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} job=${COMP_WORDS[1]}
  local said='' subs='' sub='' options='' takes='' about='' on='' words='' line part
  COMPREPLY=()
  # readline hands over --option=value as three words
  if [[ $cur == = ]]; then
    cur=''
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if ((COMP_CWORD == 1)) || [[ $job == help ]]; then
    words=$("${COMP_WORDS[0]}" --help | sed -n 's/^  \([a-z]\+\) .*/\1/p')
    [[ $job == help ]] && words+=' completion config man' || words+=' help --help --version'
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    return
  fi
  said=$("${COMP_WORDS[0]}" "$job" --help 2>/dev/null)
  subs=$(sed -n "s/.*starmill $job \([a-z][a-z|-]*\)\( .*\)*$/\1/p" <<<"${said%%$'\n\n'*}" |
    tr '|\n' '  ')
  for part in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
    [[ " $subs " == *" $part "* && -z $sub ]] && sub=$part
  done
  # a sub-command without options of its own takes the job's options
  [[ -z $sub || $said == *$'\n  --'* ]] ||
    said=$("${COMP_WORDS[0]}" "$job" "$sub" --help 2>/dev/null)
  while IFS= read -r line; do
    if [[ $line =~ ^\ \ (--[a-z0-9-]+)(\ ([^ ]+))?(\ |$) ]]; then
      options+=" ${BASH_REMATCH[1]}" on=''
      [[ ${BASH_REMATCH[1]} == "$previous" ]] && on=1 takes=${BASH_REMATCH[3]}
    elif [[ ! $line =~ ^\ \ \  ]]; then
      on=''
    fi
    [[ $on ]] && read -r part <<<"$line" && about+=" $part"
  done <<<"$said"
  if [[ $takes && $about =~ \(([^()]*)\)$ ]]; then # a value may be "one, two or three"
    while IFS= read -r part; do
      [[ $part =~ ^[a-z0-9+-]+(, [a-z0-9+-]+)*\ or\ [a-z0-9+-]+$ ]] &&
        words=${part//,/} && words=${words/ or / }
    done <<<"${BASH_REMATCH[1]//; /$'\n'}"
  fi
  if [[ -z $takes && $cur == -* ]]; then
    words=$options
  elif [[ -z $takes && $subs && -z $sub ]]; then
    words=$subs
  fi
  if [[ $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  elif [[ -z $takes || $takes == FILE || $takes == DIR || $takes =~ \.[a-z] ]]; then
    compopt -o default # names of files
  fi
}
complete -F _starmill starmill
