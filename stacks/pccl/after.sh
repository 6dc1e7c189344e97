#!/bin/sh
# pypccl's wheel needs glibc 2.38 and links CUDA's driver, though the CPU path never
# calls it. This gives its interpreter the C library of Debian 13, and a driver whose
# functions fail.
set -e
venv=$1
for tool in mmdebstrap gcc; do
    command -v $tool >/dev/null || { echo "there is no $tool: apt-get install mmdebstrap gcc libc6-dev" >&2; exit 1; }
done
mmdebstrap --quiet --variant=extract --include=libc6,libstdc++6,libgomp1,libgcc-s1 trixie "$venv/trixie"
mkdir -p "$venv/stub"
for f in cuInit cuCtxSetCurrent cuDeviceGet cuDevicePrimaryCtxRetain cuMemAlloc_v2 cuMemFree_v2 cuMemcpyDtoH_v2 \
    cuMemcpyHtoD_v2 cuPointerGetAttribute cuStreamSynchronize cuGetErrorName cuGetErrorString; do
    echo "int $f(void) { return 100; }" # no device
done >"$venv/stub/cuda.c"
gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$venv/stub/libcuda.so.1" "$venv/stub/cuda.c"
lib=$venv/trixie/usr/lib/x86_64-linux-gnu
own=$(dirname "$(dirname "$(readlink -f "$venv/bin/python")")")/lib
cat >"$venv/bin/pccl-python" <<END
#!/bin/sh
exec "$lib/ld-linux-x86-64.so.2" --library-path "$venv/stub:$lib:$own:/usr/lib/x86_64-linux-gnu" "$venv/bin/python" "\$@"
END
chmod +x "$venv/bin/pccl-python"
cat >"$venv/bin/pccl-master" <<END
#!/bin/sh
exec "$lib/ld-linux-x86-64.so.2" --library-path "$venv/stub:$lib:$own:/usr/lib/x86_64-linux-gnu" "\$@"
END
chmod +x "$venv/bin/pccl-master"
