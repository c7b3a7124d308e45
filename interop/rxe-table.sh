#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes a Markdown table of what rxe.sh found: a program a line, a condition a column, with how many
# went well of IPv4 and IPv6, as server and as client, and how long the slowest took. The last result
# of each counts.
#
# usage: rxe-table.sh RESULTS KERNEL [FILE]
# Where FILE has lines that begin with "<!-- rxe.sh: " and "<!-- end of rxe.sh", the table takes
# the place of what stands between them; else it becomes the file.
set -euo pipefail
results=$1 kernel=$2 file=${3:-}
table() {
	echo "rxe of Linux $kernel:"
	echo
	awk '
	{
		word = $1; condition = $2; place = $3 " " $4; time = $5 + 0; program = $0
		# not every awk counts in expressions
		for (i = 0; i < 5; i++) sub(/^[^ ]+ +/, "", program)
		sub(/: .*/, "", program)
		if (!(program in seen)) { seen[program] = 1; programs[++n] = program }
		known[condition] = 1
		if (!((program, condition, place) in result)) {
			places[program, condition] = places[program, condition] ";" place
		}
		result[program, condition, place] = word
		took[program, condition, place] = time
	}
	function cell(program, condition,    all, each, i, good, left, longest, bad, word) {
		all = split(substr(places[program, condition], 2), each, ";")
		if (!all) return "–"
		for (i = 1; i <= all; i++) {
			word = result[program, condition, each[i]]
			if (took[program, condition, each[i]] > longest) longest = took[program, condition, each[i]]
			if (word == "ok") good++
			else if (word == "left") left++
			else bad = bad ", not " each[i]
		}
		return good + 0 " of " all (left ? ", " left " left" : "") bad " (" longest + 0 " s)"
	}
	END {
		split("clean auto loss1 loss5 reorder duplicate all", order, " ")
		line = "| Program |"; rule = "|---|"
		for (j = 1; j in order; j++) {
			if (!(order[j] in known)) continue
			line = line " " order[j] " |"; rule = rule "---|"
		}
		print line; print rule
		for (i = 1; i <= n; i++) {
			line = "| `" programs[i] "` |"
			for (j = 1; j in order; j++) {
				if (order[j] in known) line = line " " cell(programs[i], order[j]) " |"
			}
			print line
		}
	}' "$results"
}
if [ -z "$file" ]; then
	table
elif grep -q '^<!-- rxe\.sh: ' "$file" 2>/dev/null && grep -q '^<!-- end of rxe\.sh' "$file"; then
	new=$(mktemp "$file.XXXXXX")
	{
		sed '/^<!-- rxe\.sh: /q' "$file"
		echo
		table
		echo
		sed -n '/^<!-- end of rxe\.sh/,$p' "$file"
	} >"$new"
	cat "$new" >"$file"
	rm "$new"
else
	table >"$file"
fi
