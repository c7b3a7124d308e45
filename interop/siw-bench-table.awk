# The Markdown tables of siw-bench.sh, from its settings, its cells, and the measurements:
# ROUND NAME TEST OCTETS WHAT VALUE. `file` says which of the three is being read.
function sorted(list, out,    count, i, j, items, item) {
	count = split(list, items, " ")
	for (i = 1; i <= count; i++) {
		item = items[i] + 0
		for (j = i - 1; j >= 1 && out[j] > item; j--) out[j + 1] = out[j]
		out[j + 1] = item
	}
	return count
}
function quantile(list, q,    at, low, out, count) {
	count = sorted(list, out)
	if (!count) return "nan"
	at = 1 + (count - 1) * q
	low = int(at)
	return low == count ? out[low] : out[low] + (at - low) * (out[low + 1] - out[low])
}
function shown(value) {
	if (value == "nan") return "-"
	return sprintf(value < 10 ? "%.2f" : value < 100 ? "%.1f" : "%.0f", value)
}
function over(a, b) { return a == "nan" || b == "nan" || b == 0 ? "-" : sprintf("%.2f", a / b) }
# both measured in a round: the ratios, round by round
function ratios(key, a, b,    round, list) {
	for (round = 1; round <= rounds; round++)
		if (((round, key, a) in value) && ((round, key, b) in value))
			list = list " " value[round, key, a] / value[round, key, b]
	return list
}
function table(kind,    s, c, key, tcp, siw, ours, list, t) {
	for (s = 1; s <= settings; s++) for (c = 1; c <= cells; c++) {
		key = name[s] " " cell[c]
		if (!(key in seen) || cell[c] !~ kind) continue
		tcp = quantile(values[key, "tcp"], .5)
		siw = quantile(values[key, "siw"], .5)
		ours = quantile(values[key, "iwarp"], .5)
		list = ratios(key, "iwarp", "siw")
		split(cell[c], t, " ")
		printf "| %s | %s | ib_%s | %s | %s | %s | %s | %s | %s to %s | %s | %s | %d, %d, %d |\n",
			mtu[s], crc[s], t[1], t[2], shown(tcp), shown(siw), shown(ours), over(ours, siw),
			shown(quantile(list, .25)), shown(quantile(list, .75)), over(siw, tcp),
			over(ours, tcp), number[key, "tcp"], number[key, "siw"], number[key, "iwarp"]
	}
}
function head(unit) {
	print "| MTU | CRC | Test | Octets | TCP, " unit " | siw, " unit " | iwarp, " unit \
		" | iwarp/siw | quartiles of it | siw/TCP | iwarp/TCP | measured |"
	print "|---|---|---|---|---|---|---|---|---|---|---|---|"
}
file == 1 { name[++settings] = $1; mtu[settings] = $2; crc[settings] = $3 }
file == 2 { cell[++cells] = $1 " " $2 }
file == 3 {
	key = $2 " " $3 " " $4
	seen[key] = 1
	if ($1 > rounds) rounds = $1
	if ($6 == "nan") { missing++; next }
	value[$1, key, $5] = $6
	values[key, $5] = values[key, $5] " " $6
	number[key, $5]++
}
END {
	head("MB/s")
	table("_bw")
	print ""
	head("µs")
	table("_lat")
	if (missing) { print "\n" missing " measurements failed."; exit 1 }
}
