/** The version in package.json. */
export declare const version = "0.1.0";
