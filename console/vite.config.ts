import { defineConfig } from "vite";

// The base is relative, and no file is inlined: the pages work under any path, and with a policy that allows no inline scripts and styles.
export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
    license: false,
    // React's directives for servers mean nothing here.
    rolldownOptions: { onLog: (level, log, handle) => log.code !== "MODULE_LEVEL_DIRECTIVE" && handle(level, log) },
  },
});
