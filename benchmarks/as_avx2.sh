#!/bin/sh
# Runs a command as on a processor that has AVX2 but neither AVX-512 nor AMX: benchmarks/as_avx2.sh pessimism bench
# Compilers are called with another -march, torch's libraries and JAX are told by their own variables.
set -e
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cat > "$here/g++" <<WRAPPER
#!/bin/sh
for word; do shift; [ "\$word" = -march=native ] && word=-march=x86-64-v3; set -- "\$@" "\$word"; done
exec ${CXX:-g++} "\$@"
WRAPPER
chmod +x "$here/g++"
export CXX="$here/g++" ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2
export XLA_FLAGS="--xla_cpu_max_isa=AVX2 $XLA_FLAGS"
"$@"
