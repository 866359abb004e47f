/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/options/option_completion.h"

#include <ctype.h>
#include <string.h>

/* The part of a command after "starmill ". */
static const char *after_program(const char *command)
{
  const char *space = strchr(command, ' ');
  return space ? space + 1 : "";
}

/* The words of "bench fit", or of "library build|import", that follow the job in a line. */
static void print_line_words(const char *line, const char *job, FILE *out)
{
  char command[64];
  const int n = snprintf(command, sizeof command, " starmill %s ", job);
  const char *at = strstr(line, command);
  if (!at || at > line + strcspn(line, "\n"))
    return;
  for (at += n; islower((unsigned char)*at); at += *at == '|') {
    const size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz-");
    fprintf(out, " %.*s", (int)length, at);
    at += length;
    if (*at != '|')
      return;
  }
}

static void print_sub_commands(const mill_job_row *job, FILE *out)
{
  for (int i = 0; job->help[i]; i++) {
    const char *line = job->help[i]->table->usage;
    while (line && *line && *line != '\n') {
      print_line_words(line, job->name, out);
      line += strcspn(line, "\n");
      line += *line == '\n';
    }
  }
}

/* "FILE", "LIB.h5", "DIR"; "ID,ID..." and "N" are none. */
static int is_file(const char *argument)
{
  const char *dot = strchr(argument, '.');
  return strcmp(argument, "FILE") == 0 || strcmp(argument, "DIR") == 0 ||
         (dot && islower((unsigned char)dot[1]));
}

static void print_table(const mill_option_table *table, FILE *out)
{
  fprintf(out, "  '%s')\n    options+='", after_program(table->command));
  for (const mill_option *row = table->row; row->name; row++) {
    if (row->kind != MILL_OPTION_HEADING)
      fprintf(out, " --%s", row->name);
    if (row->letter)
      fprintf(out, " -%c", row->letter);
  }
  fputs("'\n    case $2 in\n", out);
  for (const mill_option *row = table->row; row->name; row++) {
    const char *argument = mill_option_argument(row);
    const char *const *word = mill_option_type(row)->words;
    if (row->kind == MILL_OPTION_HEADING || !argument)
      continue;
    fprintf(out, "    --%s) takes=%s", row->name,
            word                ? "word words+='"
            : is_file(argument) ? "path"
                                : "other");
    for (; word && *word; word++)
      fprintf(out, " %s%s", *word, word[1] ? "" : "'");
    fputs(" ;;&\n", out);
  }
  fputs("    esac ;;&\n", out);
}

static const char function[] =
    "_starmill() {\n"
    "  local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "  local job=${COMP_WORDS[1]} sub='' subs='' options='' takes='' words='' i\n"
    "  COMPREPLY=()\n"
    "  # readline hands over --option=value as three words\n"
    "  if [[ $cur == = ]]; then\n"
    "    cur=''\n"
    "  elif [[ $previous == = ]]; then\n"
    "    previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "  fi\n"
    "  if ((COMP_CWORD == 1)); then\n"
    "    takes=word words=\"$_starmill_jobs help --help --version\"\n"
    "  elif [[ $job == help ]]; then\n"
    "    takes=word words=\"$_starmill_jobs $_starmill_pages\"\n"
    "  else\n"
    "    _starmill_job \"$job\"\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "      if [[ \" $subs \" == *\" ${COMP_WORDS[i]} \"* ]]; then\n"
    "        sub=${COMP_WORDS[i]}\n"
    "        break\n"
    "      fi\n"
    "    done\n"
    "    _starmill_options \"$job${sub:+ $sub}\" \"$previous\"\n"
    "    # a sub-command without options of its own has the job's\n"
    "    [[ -n $options ]] || _starmill_options \"$job\" \"$previous\"\n"
    "    if [[ -z $takes && $cur == -* ]]; then\n"
    "      takes=word words=$options\n"
    "    elif [[ -z $takes && -n $subs && -z $sub ]]; then\n"
    "      takes=word words=$subs\n"
    "    fi\n"
    "  fi\n"
    "  case $takes in\n"
    "  word) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\") ;;\n"
    "  other) ;;\n"
    "  *) compopt -o default ;; # names of files\n"
    "  esac\n"
    "}\n"
    "complete -F _starmill starmill\n";

void mill_completion_print(const mill_job_row *job, const char *pages, FILE *out)
{
  fputs("# bash completion for starmill: starmill help completion\n_starmill_jobs='", out);
  for (const mill_job_row *row = job; row->name; row++)
    fprintf(out, "%s%s", row == job ? "" : " ", row->name);
  fprintf(out, "'\n_starmill_pages='%s'\n", pages);
  fputs("# JOB: sets subs\n_starmill_job() {\n  case $1 in\n", out);
  for (const mill_job_row *row = job; row->name; row++) {
    fprintf(out, "  %s) subs='", row->name);
    print_sub_commands(row, out);
    fputs("' ;;\n", out);
  }
  fputs("  esac\n}\n"
        "# JOB or 'JOB SUB-COMMAND', OPTION: sets options, and takes and words of OPTION\n"
        "_starmill_options() {\n  case $1 in\n",
        out);
  for (const mill_job_row *row = job; row->name; row++)
    for (int i = 0; row->help[i]; i++)
      print_table(row->help[i]->table, out);
  fputs("  esac\n}\n", out);
  fputs(function, out);
}
