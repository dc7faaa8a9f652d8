#!/bin/bash
# Every call of UCX that is to be offered has a function of the header that offers it, or a reason why not; and every call
# of UCX that the library itself requires is in the list.
set -euo pipefail

table=$HAWSER_SOURCE_DIR/tests/header/ucx_calls.txt
header=$HAWSER_SOURCE_DIR/include/hawser.h
symbols=$HAWSER_SOURCE_DIR/core/ucx_symbols.def
status=0
calls=0

while IFS=: read -r call functions; do
    case $call in '#'* | '') continue ;; esac
    calls=$((calls + 1))
    read -ra words <<<"$functions"
    if [ "${words[0]:-}" = - ]; then
        [ ${#words[@]} -gt 1 ] || { echo "FAIL: $call has no reason"; status=1; }
        continue
    fi
    [ ${#words[@]} -gt 0 ] || { echo "FAIL: $call has no function"; status=1; }
    for function in "${words[@]}"; do
        grep -Eq "^HWS_API .*\b$function\(" "$header" || { echo "FAIL: $call: there is no $function()"; status=1; }
    done
done <"$table"
[ $calls -ge 60 ] || { echo "FAIL: only $calls calls in the list"; status=1; }

for call in $(sed -n 's/^HWS_UCX_REQUIRED(ucp, \(ucp_[a-z0-9_]*\))/\1/p' "$symbols"); do
    grep -q "^$call:" "$table" || case $call in
        ucp_worker_release_address | ucp_mem_print_info) ;; # gives back what ucp_worker_query gave
        *) echo "FAIL: $call is not in the list"; status=1 ;;
    esac
done
echo "$calls calls"
exit $status
