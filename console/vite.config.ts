import { defineConfig } from "vite";

// The base is relative and no file is inlined, so the pages work under any path, and with a content
// security policy that forbids inline scripts and styles.
export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
    license: false,
    // React's directives for servers have no effect here.
    rolldownOptions: { onLog: (level, log, handle) => log.code !== "MODULE_LEVEL_DIRECTIVE" && handle(level, log) },
  },
});
